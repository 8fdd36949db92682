"""Copies a project's root between disks and buckets, and adopts a copy as a separate root.

A file is copied after the files that it names: first tables, then the records of builds, then the
birth certificates of builds, then the journal. Paths in a Delta log are relative to the log, so
tables are valid in any folder. Until the copy is complete, a note in the target marks it as an
incomplete root. A copy that was interrupted can be continued: all files are copied again, except
for data files that were copied before, because data files never change.

An adopted copy is a separate root, with its own id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from kappa.base.errors import Conflict, Superseded, UsageError
from kappa.base.settings import Settings
from kappa.state.files.address import copy_file
from kappa.state.lock import Lock
from kappa.state.root import LOCK, Root, adopt_root, ensure_is_copy, lock_of, move_root
from kappa.state.store import Store, open_store

# A note in a target that is no root yet: the root of which the target will be a copy.
_NOTE = "copying.json"
_BUILD = r"builds/[^/]+"
# The files that this host keeps for itself, if the root is a folder.
_LOCAL = re.compile(
    rf"{_BUILD}/(checkpoint|spark|slice|lock|beat|shipped[^/]*)(/.*)?|archive/lock|.*\.(tmp|newest)"
)
# In this order; the first that matches an object has it. What matches none stays behind: locks,
# logs, scratch, states for people, and events that the collector has not sent.
_PARTS = (
    re.compile(rf"{_BUILD}/tables/.*|archive/.*"),
    re.compile(rf"(?!{_BUILD}/birth\.json){_BUILD}/.*|(schemas|alerts|collector/pull|leases)/.*"),
    re.compile(rf"{_BUILD}/birth\.json"),
    re.compile(r"journal/.*|run/asked/.*"),
)
# Files with random names, which never change.
_DATA = re.compile(rf"({_BUILD}/tables|archive)/(?!.*_delta_log/).*\.parquet")
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class CopiedRoot:
    """The result of a copy: the URL of the target, and numbers of objects.

    The numbers are the number of all objects, and the number of objects that this run has copied.
    """

    url: str
    objects: int
    copied: int


def copy_root(
    settings: Settings,
    source: Store,
    to: str,
    *,
    take_over: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> CopiedRoot:
    """Copies the root of a project to another folder or bucket, and returns the result.

    `to` is the folder or the URL of the bucket. `on_progress` is called with the number of objects
    that are copied so far and the number of all objects. With `take_over`, the root is copied even
    if another host has claimed it. Raises Conflict if the platform is up. Raises Superseded if
    another host has claimed the target, or has claimed the root and `take_over` is False. Raises
    UsageError if the target is not empty, and SettingsError if the target cannot be a root of this
    project.
    """
    target = open_store(replace(settings, root=to))
    if target.url == source.url:
        raise UsageError(f"{to} is the root itself", hint="name another folder or bucket")
    lock = lock_of(source, LOCK, what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        raise Conflict(
            "kappa is up, and changes the root while it would be copied",
            hint="stop it first, and type the command again: kappa down",
        ) from error
    with ExitStack() as ending:
        ending.callback(lock.release)
        with _hint_at_claim("type this there; or once that host is gone, here with --take-over"):
            source.control.take(over=take_over)
        ending.callback(source.control.release)
        return _copy_objects(source, target, on_progress)


def ensure_whole_root(store: Store) -> None:
    """Raises Conflict if a root is an incomplete copy, because copying was interrupted."""
    note = store.get_json(_NOTE)
    if note is not None:
        raise Conflict(
            f"the root {store.url} is a copy of {note['from']} that was cut short",
            hint=f"with that one as root: kappa root copy {store.url}",
        )


@contextmanager
def _hint_at_claim(hint: str) -> Iterator[None]:
    """Replaces the hint of a Superseded error that is raised in the `with` block.

    The error means that another host has claimed a root.
    """
    try:
        yield
    except Superseded as error:
        raise Superseded(error.message, hint=hint) from error


def _copy_objects(
    source: Store, target: Store, on_progress: Callable[[int, int], None]
) -> CopiedRoot:
    ensure_whole_root(source)
    wanted, there = objects_of(source), frozenset(objects_of(target))
    note = target.get_json(_NOTE)
    if note != {"from": source.url} and (there or note is not None):
        raise UsageError(
            f"the root {target.url} is not empty",
            hint="name a folder or a prefix that has nothing below it",
        )
    with _hint_at_claim("name a folder or a prefix that has nothing below it"):
        target.put_json(_NOTE, {"from": source.url})
    for name in sorted(there - {*wanted}, key=_part_of, reverse=True):
        # The source has dropped the object since.
        target.delete(name)
    missing = [name for name in wanted if name not in there or _DATA.fullmatch(name) is None]
    done = len(wanted) - len(missing)

    def copy(name: str) -> None:
        if _DATA.fullmatch(name) is not None:
            # The source may drop the object meanwhile.
            with suppress(FileNotFoundError):
                copy_file(source.address(name), target.address(name))
                target.sync([Path(target.address(name))])
        elif (content := source.get(name)) is not None:
            target.put(name, content)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="copy") as threads:
        for _, names in groupby(missing, _part_of):
            for _ in threads.map(copy, names):
                done += 1
                on_progress(done, len(wanted))
    move_root(source, target)
    target.delete(_NOTE)
    return CopiedRoot(target.url, len(wanted), len(missing))


def objects_of(store: Store) -> tuple[str, ...]:
    """Lists all objects of a root that belong to the project, in the order of the copy."""
    found = (name for name in store.names("") if _LOCAL.fullmatch(name) is None)
    named = ((_part_of(name), name) for name in found)
    return tuple(name for part, name in sorted(named) if part < len(_PARTS))


def _part_of(name: str) -> int:
    return next((n for n, part in enumerate(_PARTS) if part.fullmatch(name)), len(_PARTS))


def adopt_copy(store: Store, *, sends: bool) -> Root:
    """Turns a copy into a separate root with a new id, and returns the new root.

    If `sends` is False, sinks, alerts and pulled sources are off. A root that was adopted without
    `sends` may be adopted again with `sends`. Only the original root may send the events that wait
    in the collector's spool, so the copies of these events are moved aside. Raises UsageError if
    the root is not a copy, and Conflict if the platform is up on the root.
    """
    from kappa.serving.collect.collector import SPOOL  # noqa: PLC0415  # it takes a server

    is_new = ensure_is_copy(store, sends=sends)
    lock = Lock(store.local.path(LOCK), what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        raise Conflict(
            "kappa is up on this root", hint="stop it first, and type the command again: kappa down"
        ) from error
    with ExitStack() as ending:
        ending.callback(lock.release)
        # The claim in a copied bucket is of the host that has claimed the first root.
        store.control.take(over=is_new)
        ending.callback(store.control.release)
        if is_new:
            for name in store.local.names(SPOOL):
                store.local.set_aside(name)
        return adopt_root(store, sends=sends)
