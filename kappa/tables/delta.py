"""Functions that open, create and commit to Delta tables, and raise Kappa's own errors.

They use deltalake. Every commit contains metadata, the mark, with the offsets that the table has
folded (kappa/state/mark.py). A commit that folds a slice also contains a Delta transaction, so that
the slice is not folded twice. Only one process writes a table. Readers read the exact files of
pinned versions. Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.writer import write_deltalake

from kappa.base.errors import (
    Broken,
    Damaged,
    KappaError,
    UsageError,
    machine_error,
    unreadable,
)
from kappa.base.process import ticks_of_threads
from kappa.state.files.address import (
    delta_options,
    files_in,
    hint_of_server,
    put_new_file,
)
from kappa.state.files.bucket import is_bucket
from kappa.state.mark import Mark

if TYPE_CHECKING:
    import pyarrow as pa

Answer = TypeVar("Answer")
# Reader 1 and writer 2: both writers can write these tables, and every reader can read them. The
# job itself checkpoints and cleans up (laws 3 and 11: by file list, never by age), so Delta must
# not.
PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "1000000000",
}
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
LOG_FOLDER = "_delta_log"
# The file in the log's folder that names the newest checkpoint: readers begin there.
LAST_CHECKPOINT = "_last_checkpoint"
LOG_FILE = re.compile(r"(\d{20})\.")
# An overflow in a fold of many records is the fault of no single record.
OVERFLOW_HINT = (
    "no single record is at fault: fold into a wider type, by a cast of the column in the function"
)
_DISK = "see whether the disk is full or the folder may be written"
# The name of deltalake's threads, and of obstore's: the count includes obstore's.
_THREADS = "tokio-rt-worker"
# Checkpoints of a table are seconds apart at least: a second look nearly always finds its log at
# rest.
_LOOKS = 5
# The acts that are under way in threads of this process.
_under_way: list[str] = []


class CommitMark(Protocol):
    """The metadata that a commit of a build's table, an archive or a plain copy contains."""

    def to_json(self) -> str:
        """Returns the metadata as JSON text, in the form in which the commit stores it."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The Delta transaction (`txn`) of a commit, which ensures that no slice is committed twice.

    `application` and `number` are the transaction's `appId` and `version`. An application commits
    each number at most once, in ascending order.
    """

    application: str
    number: int


def create(
    path: str,
    rows: pa.Table,
    mark: CommitMark,
    otherwise: str,
    *,
    partition_by: list[str] | None = None,
) -> DeltaTable:
    """Creates a Delta table whose version 0 has these rows, and opens the table.

    `rows` may be empty. `mark` is the metadata of the commit. `otherwise` begins the message of the
    error if the creation fails.
    """
    attempted(
        lambda: write_deltalake(
            url_of(path),
            rows,
            partition_by=partition_by,
            storage_options=delta_options(path),
            configuration=dict(PROPERTIES),
            commit_properties=commit_properties(mark, None),
            post_commithook_properties=NO_HOOKS,
        ),
        otherwise,
    )
    return open_newest(path)


def open_newest(path: str) -> DeltaTable:
    """Opens a table at the newest version.

    Raises TableNotFoundError if the table does not exist, Damaged if the log is damaged, and
    KappaError if the object store does not answer.
    """
    try:
        return DeltaTable(url_of(path), storage_options=delta_options(path))
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise _unreadable_error(
            f"table {path} cannot be opened: {_first_line(error)}",
            error,
            hint="kappa replay makes a new build of it",
        ) from error


def open_version(path: str, version: int) -> DeltaTable:
    """Opens a table at a version.

    Raises Damaged if that version does not exist (any more), or if the log is damaged. Raises
    KappaError if the object store does not answer.
    """
    try:
        return DeltaTable(url_of(path), version=version, storage_options=delta_options(path))
    except (DeltaError, OSError) as error:
        told = f"version {version} of {path} cannot be opened: {_first_line(error)}"
        failed = _unreadable_error(told, error, hint="a lease may have run out: ask again")
        if isinstance(failed, Damaged) and not may_be_collected(path, version):
            raise Damaged(
                f"{told}: its log or its checkpoint is damaged, or a commit is gone",
                hint="kappa replay makes a new build of it; kappa undo lets the build before serve "
                "meanwhile",
            ) from error
        raise failed from error


def may_be_collected(path: str, version: int) -> bool:
    """Returns True if garbage collection may have deleted the log files of a version.

    If the result is False and the version is missing, the table is damaged. Garbage collection
    never deletes the newest version or the log since the newest checkpoint.
    """
    there = [name for name in files_in(f"{path}/{LOG_FOLDER}") if LOG_FILE.match(name)]
    if not there or any(name.startswith(f"{version:020d}.") for name in there):
        return not there
    newest = max(int(name[:20]) for name in there)
    checkpoints = (int(name[:20]) for name in there if name.endswith(".checkpoint.parquet"))
    return version < max(checkpoints, default=0) <= newest


def commit_properties(mark: CommitMark, guard: Guard | None) -> CommitProperties:
    """Returns deltalake's properties for a commit that contains the metadata `mark`.

    If `guard` is given, the commit also contains the Delta transaction `guard`.
    """
    # Spark's Delta keeps the mark in `userMetadata` too, so both writers' commits are read alike. A
    # table has only one writer, so there are no retries.
    return CommitProperties(
        custom_metadata={"userMetadata": mark.to_json()},
        max_commit_retries=0,
        app_transactions=None if guard is None else [Transaction(guard.application, guard.number)],
    )


def put_commit(path: str, version: int, mark: Mark, guard: Guard | None) -> bool:
    """Commits a new version that has the same rows as the previous version.

    Returns False if the version exists already. `mark` is the metadata of the commit, and `guard`
    is its Delta transaction, or None. This function writes the commit without delta-rs, which would
    also list and read the log, and so send four more requests to a bucket.
    """
    info = {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "userMetadata": mark.to_json(),
        # This id identifies our own commit if the answer to the put is lost.
        "txnId": secrets.token_hex(8),
    }
    actions: list[dict[str, object]] = [{"commitInfo": info}]
    if guard is not None:
        actions.append({"txn": {"appId": guard.application, "version": guard.number}})
    content = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
    where = f"{path}/{LOG_FOLDER}/{version:020d}.json"
    if not put_new_file(where, content):
        return False
    note_put(where, content)
    return True


# The last commits that this process has put to buckets: reading a commit there takes a request.
_PUT: dict[str, bytes] = {}
_MOST_PUT = 64


def note_put(where: str, content: bytes) -> None:
    """Caches the content of a commit that this process has written to a bucket.

    `where` is the commit's address. The cache contains the last 64 commits. A commit on a disk is
    not cached.
    """
    if is_bucket(where):
        _PUT[where] = content
        for oldest in list(_PUT)[:-_MOST_PUT]:
            _PUT.pop(oldest, None)


def put_content(where: str) -> bytes | None:
    """Returns the content of a commit from the cache of `note_put`.

    `where` is the commit's address. Returns None if the commit is not in the cache (any more).
    """
    return _PUT.get(where)


def refuse_repeated(path: str, done: int | None, guard: Guard) -> None:
    """Raises Broken if the Delta transaction `guard` was already committed to the table at `path`.

    `done` is the last number that the transaction's application has committed, or None if the
    application has committed nothing.
    """
    # 0 is a number too: only None means that the application has committed nothing.
    if done is not None and done >= guard.number:
        raise Broken(
            f"transaction {guard.number} of {guard.application} is in {path} already, "
            "and its newest commit does not say so",
            hint="kappa replay makes a new build of it",
        )


class Guards:
    """A cache of the last Delta transaction that each application has committed to a table.

    The cache contains the transaction's number. It stays correct, because the table has only one
    writer. The table's log is read once per application.
    """

    def __init__(self, path: str) -> None:
        """Creates an empty cache of transaction numbers for the table at `path`."""
        self._path = path
        # The last number of each application.
        self._done: dict[str, int | None] = {}

    def forget(self) -> None:
        """Empties the cache. Call this method after a commit that was made outside of `once`."""
        self._done.clear()

    @contextmanager
    def once(self, table: DeltaTable, guard: Guard | None) -> Iterator[None]:
        """Ensures that the block commits the Delta transaction `guard` only once.

        The block makes the commit. Raises Broken before the block if this transaction was already
        committed to the table. After the block, the cache contains the transaction's number. If
        `guard` is None, nothing is checked or cached.
        """
        if guard is None:
            yield
            return
        name = guard.application
        if name not in self._done:
            self._done[name] = attempted(
                lambda: table.transaction_version(name), f"table {self._path} could not be read"
            )
        refuse_repeated(self._path, self._done[name], guard)
        yield
        self._done[name] = guard.number


def retried(look: Callable[[], Answer]) -> Answer:
    """Calls `look` up to five times, until a call raises no KappaError, and returns its result.

    `look` is a function that reads a pinned version. Meanwhile a job may delete log files that the
    newest checkpoint has made unnecessary. If `look` listed the log before that checkpoint, it may
    try to read the deleted files, and fails. The version itself is kept, and the next call reads it
    from the checkpoint. If all calls fail, the error of the last call is raised.
    """
    for _ in range(_LOOKS - 1):
        try:
            return look()
        except KappaError:
            continue
    return look()


def attempted(act: Callable[[], Answer], otherwise: str) -> Answer:
    """Calls `act`, returns its result, and converts deltalake's errors to Kappa's errors.

    Raises Broken if a value does not fit its column, and KappaError for any other failure.
    `otherwise` begins the message of these errors.
    """
    _under_way.append(otherwise)
    try:
        return act()
    except (DeltaError, OSError, ValueError) as error:
        text = str(error)
        # DataFusion refuses casts and decimals that overflow in these words.
        if "out of range" in text or "too large to store" in text or "Overflow" in text:
            raise Broken(
                f"{otherwise}: {text.rsplit('error: ', 1)[-1]}", hint=OVERFLOW_HINT
            ) from error
        raise KappaError(
            f"{otherwise}: {_first_line(error)}", hint=hint_of_server(error) or _DISK
        ) from error
    finally:
        _under_way.pop()


def progress_of_acts() -> int:
    """Returns a number that grows while deltalake works, or 0 if deltalake is not working.

    The number is the CPU time of deltalake's threads. deltalake works while a call of `attempted`
    runs. No function of a user runs in these threads.
    """
    return ticks_of_threads(_THREADS) if _under_way else 0


def _unreadable_error(message: str, error: Exception, *, hint: str) -> KappaError:
    if (of_server := hint_of_server(error)) is not None:
        # The error shows no damage, and the next attempt may succeed.
        return KappaError(message, hint=of_server)
    return unreadable(message, error, hint=hint)


def url_of(path: str) -> str:
    """Returns a table's address in the form that delta-rs accepts.

    Raises UsageError if the path of a local table contains a per cent sign.
    """
    if is_bucket(path):
        return path
    if "%" in path:
        raise UsageError(
            f"the path {path} has a per cent sign, which delta-rs takes for an escape",
            hint="set root in kappa.toml to a folder without one",
        )
    return Path(path).as_uri()


def _first_line(error: Exception) -> str:
    number = machine_error(error)
    if number is not None:
        # The cause is on the last line of a tree.
        return os.strerror(number)
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
