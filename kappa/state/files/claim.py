"""The claim on a root in a bucket: only one machine, the control host, changes the root.

A folder on a disk is protected by the machine's own locks, but a bucket can be reached from any
machine. So an object in the bucket, the claim, names the control host. A host reads this object
before each of its requests that change the root. Two kinds of request are sent without this check:
commits of tables, and uploads of files by delta-rs and Spark. A commit is written only if no object
with the commit's name exists.

A host that seems dead may continue: it may have been suspended between the check and the request.
So if only one host may store a record, the record's number is chosen before the check, and the
record is written only if its number is free. Then a late request is refused, unless it arrives
before the new host's first record (docs/design.md, law 18).
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.disk import put_file
from kappa.base.errors import Conflict, Damaged, KappaError, SettingsError, Superseded
from kappa.base.failpoint import failpoint
from kappa.base.process import boot, machine
from kappa.state.files.bucket import Bucket

NAME = "claim.json"
# The file on the host itself that has the id of the host's claim.
_OWN = "run/claim"
# Of no object.
_NO_TAG = '"0"'
# Readers anywhere may pin snapshots, and let them go.
_ANYBODYS = ("leases/",)


class Claim(Struct, frozen=True):
    """The claim of a host. It is valid until another host claims the root.

    `id` is unique to the host. `pid` and `boot` identify the supervisor process that claimed the
    root last: its process id, and the start of the machine. If `released` is True, no host has the
    root.
    """

    host: str
    pid: int
    boot: str
    id: str
    since: str
    released: bool = False
    format: int = 1


class Control(Protocol):
    """The protocol of classes that decide which host may change a root."""

    def take(self, *, over: bool) -> None:
        """Claims the root for this host. With `over`, claims it even if another host has the claim.

        Raises Superseded if another host has the claim and `over` is False.
        """

    def ensure_mine(self) -> None:
        """Raises Superseded if another host has claimed the root."""

    def release(self) -> None:
        """Releases this host's claim, so that any host can claim the root.

        Does nothing if this host has no claim.
        """

    def holder(self) -> tuple[str, bool] | None:
        """Returns the name of the host with the claim, and True if this host has the claim.

        Returns None if no host has the claim.
        """


class DiskControl:
    """The protection of a root on a disk: file locks decide which process may change the root.

    Only one host can have a lock at a time, even on a disk that several hosts share.
    """

    def take(self, *, over: bool) -> None:
        """Does nothing: the process with the supervisor's lock controls the root."""

    def ensure_mine(self) -> None:
        """Does nothing: the process with the root's file locks controls the root."""

    def release(self) -> None:
        """Does nothing: a lock ends with its process."""

    def holder(self) -> tuple[str, bool] | None:
        """Returns None: a root on a disk has no claim."""
        return None


class BucketControl:
    """The protection of a root in a bucket: only the host with the claim may change the root."""

    def __init__(self, bucket: Bucket, local: Path) -> None:
        """Sets up `bucket` so that each change first checks that this host has the claim.

        `local` is this host's own folder, in which the id of this host's claim is stored.
        """
        self._bucket = bucket
        self._own_file = local / _OWN
        bucket.before_change = self._ensure_may_change

    def take(self, *, over: bool) -> None:
        """Claims the root for this host. With `over`, claims it even if another host has the claim.

        The caller must hold the supervisor's lock. Raises Superseded if another host has the claim
        and `over` is False. Raises Superseded or Conflict if another host changes the claim at the
        same time. Raises SettingsError if the server lacks a feature that a root needs.
        """
        found, tag = self._read_claim()
        own = self._own_id()
        free = found is None or found.released
        if found is not None and not free and found.id != own and not over:
            raise self._superseded_error(found)
        if own is None or found is None or found.id != own:
            own = secrets.token_hex(8)
        # First: a claim whose id is nowhere would be of no host.
        put_file(self._own_file, f"{own} {self._host_place()}".encode())
        claim = Claim(socket.gethostname(), os.getpid(), boot(), own, now())
        failpoint("claim.before_take")
        content = msgspec.json.encode(claim)
        put = self._bucket.put_if_tag(NAME, content, tag)
        failpoint("claim.after_take")
        if not put:
            raise self._lost_race()
        self._ensure_conditions_hold(content + b"\n")
        self._ensure_deleted_names_are_free(f"claim-{own}")
        self._ensure_lists_are_current(f"claim-{own}")

    def ensure_mine(self) -> None:
        """Raises Superseded if another host has claimed the root."""
        found, _ = self._read_claim()
        if found is not None and found.id != self._own_id() and not found.released:
            raise self._superseded_error(found)

    def release(self) -> None:
        """Releases this host's claim, so that any host can claim the root.

        Does nothing if this host has no claim.
        """
        found, tag = self._read_claim()
        if found is not None and found.id == self._own_id() and not found.released:
            failpoint("claim.before_release")
            # If another host has the claim by now, that host keeps the claim.
            self._bucket.put_if_tag(NAME, msgspec.json.encode(replace(found, released=True)), tag)
            failpoint("claim.after_release")

    def holder(self) -> tuple[str, bool] | None:
        """Returns the name of the host with the claim, and True if this host has the claim.

        Returns None if no host has the claim.
        """
        found, _ = self._read_claim()
        if found is None or found.released:
            return None
        return found.host, found.id == self._own_id()

    def _ensure_conditions_hold(self, same_claim: bytes) -> None:
        """Raises SettingsError if the server ignores the conditions of a conditional put.

        With such a server, two writers of the same object could both succeed. The test writes to
        the object of the claim, under conditions that must fail. `same_claim` is the content of the
        claim with one additional byte, so that a failed condition cannot look like a success.
        """
        if any(self._bucket.put_if_tag(NAME, same_claim, tag) for tag in (None, _NO_TAG)):
            self.release()
            raise SettingsError(
                f"the server of {self._bucket.url} ignores If-None-Match and If-Match: two "
                "who put an object at once would both win",
                hint="keep the root on a server that puts on conditions (docs/howto/bucket.md)",
            )

    def _ensure_deleted_names_are_free(self, name: str) -> None:
        """Raises SettingsError if the server refuses a conditional put for a name that was deleted.

        With such a server, a job could not commit a version again after the commit of a dead job
        was deleted. `name` is the name of no object; this method creates and deletes an object of
        this name.
        """
        self._bucket.put_if_tag(name, b"1", None)
        self._bucket.delete([name])
        free = self._bucket.put_if_tag(name, b"2", None)
        self._bucket.delete([name])
        if not free:
            self.release()
            raise SettingsError(
                f"the bucket of {self._bucket.url} puts no name again that was deleted, on the "
                "condition that there is none: a job could not go on where another was killed",
                hint="keep the root in a bucket that has never had versions, or on a server whose "
                "If-None-Match passes what was deleted (docs/howto/bucket.md)",
            )

    def _ensure_lists_are_current(self, name: str) -> None:
        """Raises SettingsError if the server's lists lack new objects, or contain deleted ones.

        With such a server, garbage collection might not see a reader's lease, and might delete the
        reader's files. `name` is the name of no object; this method creates and deletes an object
        of this name.
        """
        self._bucket.put_if_tag(name, b"1", None)
        is_shown = name in self._bucket.names_in("")
        self._bucket.delete([name])
        if is_shown and name not in self._bucket.names_in(""):
            return
        self.release()
        raise SettingsError(
            f"the server of {self._bucket.url} lists what was there a while ago: files that a "
            "reader needs would be deleted",
            hint="keep the root on a server whose lists show each put and each deletion at once, "
            "and without a cache before it (docs/howto/bucket.md)",
        )

    def _ensure_may_change(self, name: str) -> None:
        if not name.startswith(_ANYBODYS):
            self.ensure_mine()

    def _read_claim(self) -> tuple[Claim | None, str | None]:
        """Returns the claim and the entity tag of its object, or (None, None) if no claim exists.

        Raises Damaged if the claim cannot be read.
        """
        found = self._bucket.get_tagged(NAME)
        if found is None:
            return None, None
        try:
            return msgspec.json.decode(found[0], type=Claim), found[1]
        except msgspec.MsgspecError as error:
            raise Damaged(
                f"the claim {self._bucket.address(NAME)} cannot be read: {error}",
                hint="see that no host runs kappa up on this root, and delete that object",
            ) from error

    def _own_id(self) -> str | None:
        """Returns the id of this host's claim, or None if this host has no claim.

        The id is in a file of this host's own folder. If that folder was copied from another host,
        the id does not count, and None is returned.
        """
        try:
            own, _, place = self._own_file.read_text(encoding="utf-8", errors="replace").partition(
                " "
            )
        except FileNotFoundError:
            return None
        # A claim of an earlier Kappa names no place.
        return own if place in {"", self._host_place()} else None

    def _host_place(self) -> str:
        """Returns a text that identifies this host's own folder for the root.

        The text contains the machine's id and the folder's inode. A folder keeps its inode when its
        disk is mounted again. A copy of the folder, on this host or on another, has another inode
        or machine, and so does not have the claim.
        """
        folder = self._own_file.parent.parent
        folder.mkdir(parents=True, exist_ok=True)
        return f"{folder.stat().st_ino}@{machine()}"

    def _lost_race(self) -> KappaError:
        found, _ = self._read_claim()
        if found is not None and not found.released:
            return self._superseded_error(found)
        return Conflict(
            f"another host has just claimed the root {self._bucket.url}", hint="kappa up"
        )

    def _superseded_error(self, claim: Claim) -> Superseded:
        return Superseded(
            f"the root {self._bucket.url} is claimed by host {claim.host} (process {claim.pid}, "
            f"since {claim.since})",
            hint="type this there; or once that host is gone, here: kappa up --take-over",
        )
