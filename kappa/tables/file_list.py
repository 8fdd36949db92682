"""The live files of a table's version, and a checksum of this list that a frontier contains.

For each file, a hash (SHA-256) is computed over the file's name, size, deletion vector, partition
values and statistics. The checksum of a list is the sum of these hashes, modulo 2^128. For each
commit, a job adds the hashes of added files and subtracts the hashes of removed files, so updating
the checksum needs no access to the disk. A list has the same checksum whether it is read from
commits or from a checkpoint. If the list in a Delta log does not have the checksum that the
frontier contains, the log is damaged, and Kappa answers no query from the table.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field

from kappa.base.errors import Damaged, KappaError, unreadable
from kappa.base.sql import text
from kappa.state.files.address import (
    ask_side_by_side,
    entries_at,
    fetch_file,
    files_in,
    missing_file_error,
    read_file,
)
from kappa.state.files.bucket import is_bucket
from kappa.tables.delta import LOG_FOLDER, may_be_collected, put_content, retried

if TYPE_CHECKING:
    from kappa.base.duck import Connection

CHECKPOINT = ".checkpoint.parquet"
MEND = (
    "kappa replay makes a new build of it; kappa undo lets the build before serve meanwhile; "
    "kappa scrub looks at all files"
)
_SUMS = 1 << 128
# All actions that Kappa's writers put into a commit of a table of reader 1 and writer 2.
_ACTIONS = frozenset(
    ("add", "remove", "metaData", "protocol", "txn", "commitInfo", "domainMetadata", "cdc")
)


class Added(Struct, rename="camel", forbid_unknown_fields=True):
    """A file that a commit adds: Delta's `add` action. `path` is escaped, as in the commit."""

    path: str
    size: int
    partition_values: dict[str, str | None] = field(default_factory=dict)
    stats: str | None = None
    deletion_vector: Any = None
    data_change: bool = True
    modification_time: int = 0
    tags: Any = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @property
    def name(self) -> str:
        """Returns the file's name, relative to the table."""
        return _unescaped_path(self.path)

    def hash(self) -> int:
        """Returns the hash of the file's name, size, partition values and statistics.

        The checksum of a file list is the sum of these hashes.
        """
        vector = self.deletion_vector
        plain = [
            self.name,
            self.size,
            sorted(self.partition_values.items()),
            self.stats,
            sorted(vector.items()) if isinstance(vector, dict) else vector,
        ]
        return int.from_bytes(hashlib.sha256(msgspec.json.encode(plain)).digest()[:16], "big")


class Removed(Struct, rename="camel", forbid_unknown_fields=True):
    """A file that a commit removes: Delta's `remove` action.

    `data_change` is False if another file now contains the rows of this file.
    """

    path: str
    data_change: bool = True
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Any = None
    deletion_vector: Any = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def name(self) -> str:
        """Returns the file's name, relative to the table."""
        return _unescaped_path(self.path)


def _unescaped_path(path: str) -> str:
    return unquote(path) if "%" in path else path


@dataclass(frozen=True, slots=True)
class Commit:
    """The files that a commit adds and removes. `is_slice` is True if the commit folds a slice."""

    added: tuple[Added, ...]
    removed: tuple[Removed, ...]
    is_slice: bool


class _FileLine(Struct):
    add: Added | None = None
    remove: Removed | None = None


_LINES = msgspec.json.Decoder(_FileLine)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def commit_path(path: str, version: int) -> str:
    """Returns the address of the commit file of a version of the table at `path`."""
    return f"{path}/{LOG_FOLDER}/{version:020d}.json"


def parse_commit(content: bytes, *, where: str) -> Commit:
    """Parses the content of a commit file. Raises Damaged if the content is not a commit.

    `where` names the file in the error. Empty content is not a commit. Other Delta readers ignore
    unknown actions. Here an unknown action counts as damage, because Kappa knows all actions that
    its own writers use.
    """
    added, removed, seen = list[Added](), list[Removed](), set[str]()
    try:
        for line in content.splitlines():
            keys = _KEYS.decode(line).keys()
            if len(keys) != 1 or not keys <= _ACTIONS:
                raise _damaged_error(where, f"it has an action {', '.join(sorted(keys))[:80]!r}")
            seen |= keys
            if keys.isdisjoint(("add", "remove")):
                continue
            action = _LINES.decode(line)
            if action.add is not None:
                added.append(action.add)
            if action.remove is not None:
                removed.append(action.remove)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged_error(where, str(error)) from error
    if "commitInfo" not in seen:
        raise _damaged_error(where, "it is empty" if not content.strip() else "it names no writer")
    return Commit(tuple(added), tuple(removed), "txn" in seen)


def read_commit(path: str, version: int) -> Commit:
    """Reads the commit of a version of the table at `path`.

    Raises Damaged if the commit file is not valid, and FileNotFoundError if the commit file does
    not exist (any more).
    """
    where = commit_path(path, version)
    try:
        return parse_commit(read_file(where), where=where)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(f"{where} cannot be read: {error}", error, hint=MEND) from error


def put_or_read_commit(path: str, version: int) -> Commit:
    """Returns a commit from this process's cache, or reads the commit if it is not cached.

    The cache contains the last commits that this process has written to a bucket. Raises the errors
    of `read_commit`.
    """
    where = commit_path(path, version)
    content = put_content(where)
    return read_commit(path, version) if content is None else parse_commit(content, where=where)


@dataclass(frozen=True, slots=True)
class FileList:
    """The live files of a version: each file's size and hash, by its name relative to the table."""

    version: int
    files: Mapping[str, tuple[int, int]]
    total: int

    @property
    def sum(self) -> str:
        """Returns the checksum of this list as 32 hexadecimal digits.

        A frontier stores the checksum in this form.
        """
        return f"{self.total:032x}"

    def after(self, commits: Iterable[Commit]) -> FileList:
        """Returns the file list after these commits have added and removed files.

        The first commit must be the commit after this list's version, and no commit may be missing.
        """
        files, total, version = dict(self.files), self.total, self.version
        for commit in commits:
            version += 1
            for old in commit.removed:
                total -= files.pop(old.name, (0, 0))[1]
            for new in commit.added:
                total -= files.pop(new.name, (0, 0))[1]
                files[new.name] = new.size, new.hash()
                total += files[new.name][1]
        return FileList(version, files, total % _SUMS)

    def at(self, path: str) -> tuple[str, ...]:
        """Returns the sorted absolute paths or URLs of the files in a table at `path`."""
        return tuple(sorted(f"{path}/{name}" for name in self.files))


def read_list(path: str, version: int) -> FileList:
    """Reads the file list of a version, from a checkpoint and the commits after it.

    The checkpoint is the newest one that is not after the version. Raises Damaged if the version
    does not exist (any more), or if a part of the log is damaged.
    """
    return retried(lambda: _read_list(path, version))


def _read_list(path: str, version: int) -> FileList:
    try:
        base = checkpoint_before(path, version)
        found = FileList(-1, {}, 0) if base is None else _checkpoint_files(path, base)
        return found.after(commits_between(path, found.version, version))
    except FileNotFoundError as error:
        may_be = may_be_collected(path, version)
        raise Damaged(
            f"version {version} of {path} cannot be opened: {error.filename} is gone",
            hint="a lease may have run out: ask again" if may_be else MEND,
        ) from error


def checkpoint_before(path: str, version: int) -> int | None:
    """Returns the newest checkpointed version that is not after `version`.

    Returns None if there is no such checkpoint.
    """
    numbers = (
        int(name.removesuffix(CHECKPOINT))
        for name in files_in(f"{path}/{LOG_FOLDER}")
        if name.endswith(CHECKPOINT) and name.removesuffix(CHECKPOINT).isdigit()
    )
    return max((number for number in numbers if number <= version), default=None)


def commits_between(
    path: str, version: int, until: int, read: Callable[[str, int], Commit] = read_commit
) -> list[Commit]:
    """Reads the commits after `version`, up to and including `until`.

    Raises the errors of `read_commit`.
    """
    numbers = range(version + 1, until + 1)
    if not numbers:
        return []
    # Upkeep deletes the oldest: if the first is gone, most are.
    first = read(path, numbers[0])
    return [first, *ask_side_by_side(path, lambda number: read(path, number), numbers[1:])]


def _checkpoint_files(path: str, version: int) -> FileList:
    from kappa.base.duck import DuckError  # noqa: PLC0415  # as below

    where = f"{path}/{LOG_FOLDER}/{version:020d}{CHECKPOINT}"
    try:
        rows = _adds_of_bucket(where) if is_bucket(where) else _added_files(where)
        added = [
            Added(name, size, {} if values is None else dict(values), stats, vector)
            for name, size, values, stats, vector in rows
        ]
    except DuckError as error:
        if not is_bucket(where) and not Path(where).exists():
            raise missing_file_error(where) from error
        raise _damaged_error(where, str(error).partition("\n")[0]) from error
    return FileList(version - 1, {}, 0).after([Commit(tuple(added), (), is_slice=False)])


def _added_files(file: str) -> list[tuple[Any, ...]]:
    with _duck().cursor() as duck:
        # For a parameter DuckDB would import pandas, to see whether the value is pandas's.
        name = text(re.sub(r"([\[*?])", r"[\1]", file))
        return duck.execute(
            "select add.path, add.size, add.partitionValues, add.stats, add.deletionVector "
            f"from read_parquet({name}) where add is not null"
        ).fetchall()


@functools.cache
def _duck() -> Connection:
    """Returns this process's DuckDB connection, which reads checkpoints.

    DuckDB is used because it opens faster than Arrow can be imported.
    """
    # The import takes 0.1 s, and most logs are read without DuckDB.
    from kappa.base.duck import open_connection  # noqa: PLC0415

    # Without threads of its own, the connection does no harm where a process forks.
    return open_connection({"threads": 1})


os.register_at_fork(after_in_child=_duck.cache_clear)


def _adds_of_bucket(url: str) -> list[tuple[Any, ...]]:
    with TemporaryDirectory(prefix="kappa-") as folder:
        file = Path(folder) / "checkpoint.parquet"
        fetch_file(url, file)
        return _added_files(str(file))


def missing_in(path: str, found: FileList, sizes: Mapping[str, int]) -> str | None:
    """Describes the first file of a list that does not exist or has another size than listed.

    Returns None if there is no such file. `sizes` maps the addresses of the files in the table's
    folder to their sizes. The listed sizes come from Delta's commits, so no data file is read.
    """
    for name, (size, _) in sorted(found.files.items()):
        there = sizes.get(f"{path}/{name}")
        if there is None:
            return f"file {path}/{name} is gone"
        if there != size:
            told = f"it had {size} bytes, and has {there}"
            return f"file {path}/{name} is not as it was written: {told}"
    return None


def ensure_vouched(path: str, found: FileList, vouched: str | None) -> None:
    """Raises Damaged if a file list does not have the checksum `vouched`.

    The frontier contains `vouched`. `vouched` is None for a frontier of an older Kappa, which
    stored no such checksums; then nothing is compared. If the log itself shows which of its files
    is damaged, the error names this file.
    """
    if vouched is None or found.sum == vouched:
        return
    log = f"{path}/{LOG_FOLDER}"
    raise Damaged(
        f"{_culprit_commit(path, found.version) or f'a file of {log}'} is not as it was written: "
        "version "
        f"{found.version} of {path} has {len(found.files)} files by its log, and they are not "
        "those that its frontier vouches for",
        hint=MEND,
    )


def ensure_read(found: FileList, path: str, read: Iterable[str]) -> None:
    """Raises Damaged unless the files in `read` are exactly the files in the list `found`.

    `read` contains the files that delta-rs has found in the table's log, as paths or URLs. Only the
    names of the files are compared, not their folders.
    """
    # Without folders: delta-rs follows the links in a path.
    names = {name.rsplit("/", 1)[-1] for name in read}
    if names != {name.rsplit("/", 1)[-1] for name in found.files}:
        raise Damaged(
            f"the log of {path} was read when it was damaged: version {found.version} has other "
            "files",
            hint="the job begins again by itself; kappa doctor names what is damaged",
        )


def _culprit_commit(path: str, version: int) -> str | None:
    """Returns the address of the commit that contradicts the rest of the log or the data files.

    Returns None if no such commit is found. The search compares the sizes of all files. So it runs
    only after a table was found damaged.
    """
    try:
        base = checkpoint_before(path, version)
        found = FileList(-1, {}, 0) if base is None else _checkpoint_files(path, base)
        commits = commits_between(path, found.version, version)
    except (FileNotFoundError, KappaError):
        return None
    sizes = {each.address: each.size for each in entries_at(path)}
    last = {new.name: number for number, each in enumerate(commits) for new in each.added}
    for number, commit in enumerate(commits):
        is_odd = any(gone.name not in found.files for gone in commit.removed) or any(
            new.name in found.files for new in commit.added
        )
        found = found.after([commit])
        is_odd |= any(
            last[new.name] == number
            and f"{path}/{new.name}" in sizes
            and sizes[f"{path}/{new.name}"] != new.size
            for new in commit.added
        )
        if is_odd:
            return commit_path(path, found.version)
    final = found.files.keys()
    for number, commit in enumerate(commits):
        for new in commit.added:
            if new.name in final and f"{path}/{new.name}" not in sizes:
                return commit_path(path, version - len(commits) + 1 + number)
    return None


def _damaged_error(where: str, why: str) -> Damaged:
    return Damaged(f"{where} is not as it was written: {why}", hint=MEND)
