"""The identity of a root, that is, its id and its place. The identity shows if a root is a copy.

If two roots had the same id, they would fold the same topics, send the same messages and end each
other's processes. `root.json` contains the place of the root: the device and inode of its folder,
or its bucket and prefix. A copy contains the `root.json` of the first root, but is in another
place:

| place of the root now | the root is |
|---|---|
| in the same folder, under any path (`mv` on a disk, a restart) | the same |
| in that folder, but the stored path has another root of the same id (`mv`, `cp` back) | a copy |
| at the same path, in another folder (restored) or on another device (mounted again) | the same |
| elsewhere, and the stored path has no root of the same id (`mv` to another disk) | the same |
| elsewhere, and the stored path still has a root of the same id, or its process runs | a copy |
| on another machine, under any path (`rsync`, a snapshot of a disk) | a copy |
| in another bucket or at another prefix than the stored one | a copy |

A container has no machine id. In a container, a root is the same if it is in the same folder, or if
its folder has the same inode and path (a volume that is mounted again). Otherwise it is a copy.

`root_copy.json` is a copy of the file `root.json`. If a root has lost `root.json` and still has
`root_copy.json`, Kappa does not treat the root as one that an earlier Kappa created: the root can
only be changed after `kappa doctor --repair` has restored the file.

A copy of a root can be read like any root, but cannot be changed until `kappa root adopt` assigns a
new id to the copy. Two kinds of copies are not recognized: a snapshot of a disk that is mounted at
the path of the first root, on the same machine or in a container; and a bucket of the same name on
another server.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Copied, Damaged, UsageError
from kappa.base.process import machine
from kappa.state.lock import Lock, last_holder
from kappa.state.store import Store

NAME = "root.json"
# The copy that takes the place of a damaged or lost file (kappa doctor).
ROOT_COPY = "root_copy.json"
# The supervisor's lock: the process that has this lock has the root.
LOCK = "run/supervisor.lock"
_ID_BYTES = 8
SENDS_NOT = "its sinks, alerts and pulled sources are off until kappa root adopt --send"
_ADOPT = (
    "kappa root adopt makes it a root of its own, which sends nothing; with --send it takes the "
    "first one's place, once that is gone for good"
)


class RootPlace(Struct, frozen=True):
    """The place of a root: a folder of a machine, or the URL of a bucket and prefix.

    For a bucket, `device` and `inode` are 0 and `machine` is "". `machine` is also "" if the
    machine's id is not known.
    """

    address: str
    device: int = 0
    inode: int = 0
    machine: str = ""


class Root(Struct, frozen=True):
    """The identity of a root: its id, and the place where it is.

    If the root is an adopted copy, `adopted_from` is the id of the root from which it was copied;
    otherwise it is "". If `sends` is True, the root runs sinks and alerts, pulls events from
    sources, and sends the events that wait in the collector's spool.
    """

    id: str
    made_at: str
    place: RootPlace
    adopted_from: str = ""
    sends: bool = True
    format: int = 1

    @property
    def writer(self) -> str:
        """The name under which the sinks of this root write to their topics.

        For an adopted copy, this is the root's id. For any other root, it is "".
        """
        return self.id if self.adopted_from else ""


class RootRelation(StrEnum):
    """The relation between a folder or bucket prefix and the root that its `root.json` identifies.

    SAME is that root itself, MOVED is that root in a new place, and COPY is a copy of that root.
    """

    SAME = "same"
    MOVED = "moved"
    COPY = "copy"


# The identities of roots that are no copies: once read, each holds for a process's life.
_KNOWN: WeakKeyDictionary[Store, Root] = WeakKeyDictionary()


def root_relation(
    named: RootPlace, here: RootPlace, *, is_there: bool, runs: bool, runs_here: bool = False
) -> RootRelation:
    """Returns the relation of the root at `here` to the root that its `root.json` identifies.

    `named` is the place that `root.json` contains. `is_there` is True if another folder, at the
    path in `named`, contains a root with the same id. `runs` is True if a process of that root
    holds the supervisor's lock in another folder. `runs_here` is True if a process holds the
    supervisor's lock in this folder. Pure.
    """
    if not (named.inode and here.inode):
        # At least one is in a bucket.
        return RootRelation.SAME if named == here else RootRelation.COPY
    is_known = bool(named.machine and here.machine)
    is_folder = (named.device, named.inode) == (here.device, here.inode)
    if is_known and named.machine != here.machine:
        return RootRelation.COPY
    if is_folder:
        if named == here:
            return RootRelation.SAME
        is_elsewhere = is_known and is_there and named.address != here.address
        return RootRelation.COPY if is_elsewhere and not runs_here else RootRelation.MOVED
    if runs:
        return RootRelation.COPY
    if named.address == here.address:
        return RootRelation.MOVED if is_known or named.inode == here.inode else RootRelation.COPY
    return RootRelation.COPY if is_there or not is_known else RootRelation.MOVED


def read_root(store: Store) -> Root | None:
    """Returns the identity of a root, or None if the root has none yet.

    The first Kappa that runs on a root gives the root an identity; only old releases of Kappa did
    not. Raises Damaged if `root.json` has changed since it was written, or if it is missing
    although `root_copy.json` exists.
    """
    content = store.get(NAME)
    is_lost = False
    if content is None and store.get(ROOT_COPY) is not None:
        # Another process may have put both files since the look: the copy is put second.
        content = store.get(NAME)
        is_lost = content is None
    root = None if content is None else _parse_root(content)
    if root is None and (is_lost or content is not None):
        raise Damaged(
            f"{store.address(NAME)} is {'gone' if content is None else 'not as it was written'}",
            hint="kappa down, then kappa doctor --repair: it puts a copy of the file back"
            if has_root_copy(store)
            else f"put the file back from a backup; without one delete it and {ROOT_COPY}, if this "
            "root is not a copy",
        )
    return root


def has_root_copy(store: Store) -> bool:
    """Returns True if `root_copy.json` exists and is intact."""
    return _parse_root(store.get(ROOT_COPY) or b"") is not None


def why_silent(store: Store) -> str:
    """Returns the reason why a root sends no messages and no records, or "" if it sends them.

    A root that was copied and then adopted sends nothing until a person allows it.
    """
    root = read_root(store)
    if root is None or root.sends:
        return ""
    return f"this root was adopted from {root.adopted_from}: {SENDS_NOT}"


def own_root(store: Store) -> Root | None:
    """Returns the identity of a root, or None if the root has none. Raises Copied for a copy.

    The place in the returned identity is the root's present place.
    """
    known = _KNOWN.get(store)
    if known is not None:
        return known
    root = read_root(store)
    if root is None:
        return None
    here = place_of(store)
    kin = _find_relation(store, root, here)
    if kin is RootRelation.COPY:
        raise Copied(
            f"the root {here.address} is a copy of root {root.id}, which "
            + (
                f"is at {root.place.address}"
                if root.place.address != here.address
                else "was in another folder here, or is on another machine"
            )
            + ": of the two only that one may fold and send",
            hint=_ADOPT,
        )
    root = replace(root, place=here)
    if kin is RootRelation.SAME:
        _KNOWN[store] = root
    return root


def ensure_no_copy(store: Store) -> None:
    """Raises Copied if the root is a copy, because a copy must not be changed."""
    own_root(store)


def ensure_root(store: Store) -> Root:
    """Returns the identity of a root, and stores it if it is missing or its place has changed.

    Raises Copied if the root is a copy.
    """
    if store in _KNOWN:
        return _KNOWN[store]
    root = own_root(store)
    if root is None:
        # Of several processes that begin a root at once, one gives the root its id.
        root = Root(secrets.token_hex(_ID_BYTES), now(), place_of(store))
        if not store.put_new(NAME, _content(root)):
            root = own_root(store) or root
    if root != read_root(store) or _parse_root(store.get(ROOT_COPY) or b"") != root:
        put_root(store, root)
    _KNOWN[store] = root
    return root


def _content(root: Root) -> bytes:
    return sealed(msgspec.to_builtins(root))[0]


def put_root(store: Store, root: Root) -> None:
    """Stores the identity of a root in `root.json` and `root_copy.json`, replacing both files."""
    content = _content(root)
    store.put(NAME, content)
    store.put(ROOT_COPY, content)
    _KNOWN.pop(store, None)


def ensure_is_copy(store: Store, *, sends: bool) -> bool:
    """Returns True if a root is a copy, and False if it is an adopted root that may start sending.

    False is returned only if `sends` is True and the adopted root does not send yet. Raises
    UsageError for any other root.
    """
    root = read_root(store)
    if root is None:
        raise UsageError(
            f"the root {store.url} does not say whose copy it is: it has no {NAME}",
            hint="kappa up makes one, and takes this root for the first of its kind",
        )
    if _find_relation(store, root, place_of(store)) is RootRelation.COPY:
        return True
    if root.adopted_from and sends and not root.sends:
        return False
    raise UsageError(
        f"the root {store.url} is not a copy: it is root {root.id}"
        + (f", adopted from root {root.adopted_from}" if root.adopted_from else ""),
        hint="kappa up" if root.sends else "kappa root adopt --send lets it send",
    )


def adopt_root(store: Store, *, sends: bool) -> Root:
    """Assigns a new id to a copied root, or allows a root that was adopted before to send.

    Returns the root's new identity. The caller must hold the supervisor's lock and the claim.
    Raises UsageError if the root is of neither kind.
    """
    is_copy, root = ensure_is_copy(store, sends=sends), read_root(store)
    assert root is not None, "it was just read"
    adopted = (
        Root(secrets.token_hex(_ID_BYTES), now(), place_of(store), root.id, sends)
        if is_copy
        else replace(root, sends=True)
    )
    put_root(store, adopted)
    return adopted


def move_root(source: Store, target: Store) -> None:
    """Stores the identity of the root `source` in `target`, a complete copy of that root.

    The caller must then delete `source`.
    """
    root = own_root(source)
    if root is not None:
        put_root(target, replace(root, place=place_of(target)))


def place_of(store: Store) -> RootPlace:
    """Returns the present place of a root."""
    if not store.is_on_disk:
        return RootPlace(store.url)
    found = store.folder.stat()
    return RootPlace(str(store.folder), found.st_dev, found.st_ino, machine())


def lock_of(store: Store, name: str, *, what: str) -> Lock:
    """Returns a lock of a root, without taking the lock. Raises Copied if the root is a copy.

    `name` is the name of the lock's file in `store.local`. `what` is the name of the locked thing
    in errors.
    """
    # In a bucket the supervisor makes the identity, once the supervisor has claimed the root.
    root = ensure_root(store) if store.is_on_disk else own_root(store)
    return Lock(store.local.path(name), what=what, root="" if root is None else root.id)


def _find_relation(store: Store, root: Root, here: RootPlace) -> RootRelation:
    if root.place == here:
        return RootRelation.SAME
    found = last_holder(store.local.path(LOCK))
    runs = found is not None and bool(found[0].inode) and found[0].process is not None
    is_own = found is not None and found[1]
    return root_relation(
        root.place,
        here,
        is_there=_is_there(root, here),
        runs=runs and not is_own,
        runs_here=runs and is_own,
    )


def _is_there(root: Root, here: RootPlace) -> bool:
    """Returns True if another root with the same id may be at the path in `root.json`."""
    path = root.place.address
    if path == here.address or "://" in path:
        return path != here.address
    try:
        there = Path(path).stat()
        if (there.st_dev, there.st_ino) == (here.device, here.inode):
            # By a link, or a second mount.
            return False
        file = Path(path) / NAME
        found = _parse_root((file if file.exists() else file.with_name(ROOT_COPY)).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # This process may not look there.
        return True
    return found is None or found.id == root.id


def _parse_root(content: bytes) -> Root | None:
    try:
        document, seal = unsealed(content)
        return msgspec.convert(document, Root) if seal else None
    except (ValueError, msgspec.ValidationError):
        return None
