"""The versions of a Delta table: their exact files, columns and metadata (marks)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kappa.base.errors import Damaged, KappaError, unreadable
from kappa.state.files.address import file_exists, files_in, read_file
from kappa.state.mark import Mark, parse_mark
from kappa.tables.delta import LOG_FILE, LOG_FOLDER, attempted, open_version, retried
from kappa.tables.file_list import (
    CHECKPOINT,
    FileList,
    commit_path,
    commits_between,
    ensure_vouched,
    put_or_read_commit,
    read_commit,
    read_list,
)

# Up to this many commits are faster to read than a checkpoint.
_FEW = 200
# Delta's names for types that differ from Spark's simple ones.
_SIMPLE = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


# Of tables that this process writes: the list of the version that the process has published last,
# or has compared at its start with the list that a frontier vouches for.
_COMPARED: dict[str, FileList] = {}


def note_compared(path: str, found: FileList) -> None:
    """Caches the file list of a table that this process writes.

    The list was compared with the checksum in a frontier, or belongs to a version that the next
    frontier will contain.
    """
    _COMPARED[path] = found


def forget_lists(path: str) -> None:
    """Deletes the file list of a table from the cache of `note_compared`."""
    _COMPARED.pop(path, None)


def list_of(
    path: str, version: int, vouched: str | None, known: FileList | None = None
) -> FileList:
    """Returns the list of the live files of a version.

    If possible, the list is computed from the list of an earlier version and the commits after it.
    The earlier list is `known`, or the list in the cache of `note_compared`. `vouched` is the
    checksum of the file list in the frontier that contains this version. `vouched` is None if this
    process has committed the version itself and will publish it with the next frontier, or if an
    older Kappa has written the frontier. Raises Damaged if the list does not have this checksum, or
    if the version does not exist (any more).
    """
    bases = [
        each
        for each in (known, _COMPARED.get(path))
        if each is not None and version - _FEW <= each.version <= version
    ]
    if bases:
        base = max(bases, key=lambda each: each.version)
        # If the commits since are gone, or do not fit, the log itself decides.
        with suppress(FileNotFoundError, KappaError):
            since = commits_between(path, base.version, version, put_or_read_commit)
            found = base.after(since) if since else base
            if vouched is None or found.sum == vouched:
                return found
    found = read_list(path, version)
    ensure_vouched(path, found, vouched)
    return found


def list_since(path: str, known: Mapping[int, FileList], version: int) -> FileList:
    """Returns the file list of a version, computed from the newest earlier list in `known`.

    `known` maps versions to file lists. If it contains no earlier list, the list is read from the
    table's log.
    """
    last = max((each for each in known if each <= version), default=None)
    return list_of(path, version, None, None if last is None else known[last])


def files(path: str, version: int, vouched: str | None) -> tuple[str, ...]:
    """Lists the exact data files of a version, as absolute paths or URLs.

    `vouched` is the checksum of the version's file list in a frontier, or None (see `list_of`). The
    parameter has no default, so that no caller forgets to pass it. Raises the errors of `list_of`.
    """
    return list_of(path, version, vouched).at(path)


def files_of(path: str, version: int, listed: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Returns the sorted data files of a version that is open in delta-rs.

    The files are absolute paths or URLs. `listed` is delta-rs's method that lists the files. `path`
    and `version` appear in errors.
    """
    said = attempted(listed, f"the files of {path} version {version} could not be listed")
    return tuple(sorted(map(_local_path, said)))


def log_of(path: str, version: int) -> tuple[str, ...]:
    """Lists the log files from which a version is read.

    These are the newest checkpoint that is not after the version, if there is one, and the later
    commits up to the version.
    """
    log = f"{path}/{LOG_FOLDER}"
    numbered = sorted(
        (int(found[1]), name)
        for name in files_in(log)
        if (found := LOG_FILE.match(name)) is not None and int(found[1]) <= version
    )
    checkpoints = {number: name for number, name in numbered if name.endswith(CHECKPOINT)}
    first = max(checkpoints, default=0)
    commits = (name for number, name in numbered if number >= first and name.endswith(".json"))
    names = (*([checkpoints[first]] if first in checkpoints else ()), *commits)
    return tuple(f"{log}/{name}" for name in names)


class FileLists:
    """A cache of the newest file list of each table, for a process that lists files often."""

    def __init__(self, *, tables: int = 256) -> None:
        """Creates an empty cache for at most `tables` tables."""
        self._tables = tables
        self._last: dict[str, FileList] = {}

    def at(self, path: str, version: int, vouched: str | None) -> tuple[str, ...]:
        """Lists the data files of a version, like the function `files`."""
        return self.list_at(path, version, vouched).at(path)

    def list_at(self, path: str, version: int, vouched: str | None) -> FileList:
        """Returns the file list of a version, like the function `list_of`."""
        last = self._last.get(path)
        found = list_of(path, version, vouched, last)
        if last is None or last.version < version:
            self._last.pop(path, None)
            self._last[path] = found
            for forgotten in list(self._last)[: -self._tables]:
                self._last.pop(forgotten, None)
        return found


def touched_files(path: str, version: int, until: int) -> tuple[frozenset[str], bool] | None:
    """Lists the files of the version `until` with rows that slices after `version` have changed.

    Returns the names of the files, and True if some of these rows are missing. The files contain
    each changed row that still exists, and may contain other rows. The commits of maintenance and
    of drains belong to no slice, and change no row that readers see. But such a commit may have
    deleted changed rows: a drain deletes recent rows, and maintenance deletes hidden rows. In this
    case, the second value is True. Returns None if a commit does not exist any more. Raises Damaged
    if a commit cannot be read.
    """
    found, lacks = set[str](), False
    try:
        commits = [read_commit(path, number) for number in range(version + 1, until + 1)]
    except FileNotFoundError:
        return None
    for commit in commits:
        added = {f"{path}/{each.name}" for each in commit.added}
        removed = {f"{path}/{each.name}" for each in commit.removed}
        # A slice's rows are in files of its own; files that were rewritten with them follow.
        if commit.is_slice or found & removed:
            lacks |= not commit.is_slice and any(each.data_change for each in commit.removed)
            found |= added
        found -= removed
    return frozenset(found), lacks


def files_of_commit(path: str, version: int) -> Iterator[Path]:
    """Yields the paths of the files that a commit has added, and of the commit itself.

    If Spark has written a checksum file for one of these files, the path of the checksum file is
    yielded too. Raises Damaged if the commit cannot be read.
    """
    try:
        added = read_commit(path, version).added
    except FileNotFoundError as error:
        raise unreadable(
            f"version {version} of {path} cannot be read: {error}",
            error,
            hint="the job is started again, and takes the version back",
        ) from error
    for each in added:
        yield from _with_checksum(Path(path) / each.name)
    yield from _with_checksum(Path(commit_path(path, version)))


def _with_checksum(file: Path) -> Iterator[Path]:
    yield file
    # Spark writes the checksum beside the file, and reads no file with a torn checksum.
    beside = file.with_name(f".{file.name}.crc")
    if beside.exists():
        yield beside


def schema(path: str, version: int) -> tuple[tuple[str, str], ...]:
    """Lists the columns of a version, as (name, simple Spark type)."""
    fields = json.loads(retried(lambda: open_version(path, version).schema().to_json()))["fields"]
    return tuple((str(field["name"]), _simple_type(field["type"])) for field in fields)


def mark_of(path: str, version: int) -> Mark:
    """Returns the mark of a version's commit: the offsets that the table has folded, and totals.

    Raises Damaged if the commit has no mark, or does not exist (any more).
    """
    return parse_mark(mark_text(path, version), where=f"version {version} of {path}")


def mark_text(path: str, version: int) -> str | None:
    """Returns the text of the mark in a version's commit, or None if the commit has no mark.

    The mark is the metadata that Kappa stores in a commit.
    """
    return commit_info(path, version).get("userMetadata")


def commit_info(path: str, version: int) -> Mapping[str, Any]:
    """Returns the `commitInfo` action of a version's commit.

    Returns an empty mapping if the commit contains no such action. Raises Damaged if the commit
    does not exist (any more) or cannot be read.
    """
    try:
        lines = read_file(commit_path(path, version)).decode().splitlines()
        infos = [json.loads(line).get("commitInfo") for line in lines if '"commitInfo"' in line]
    except (OSError, ValueError) as error:
        raise unreadable(
            f"version {version} of {path} cannot be read: {error}",
            error,
            hint="kappa replay makes a new build of it",
        ) from error
    return next((info for info in infos if info), {})


def is_committed(path: str, version: int) -> bool:
    """Returns True if the commit file of a version exists, even if it is incomplete."""
    return file_exists(commit_path(path, version))


def _simple_type(kind: object) -> str:
    match kind:
        case str():
            return _SIMPLE.get(kind, kind)
        case {"type": "array", "elementType": element}:
            return f"array<{_simple_type(element)}>"
        case {"type": "struct", "fields": [*fields]}:
            return (
                "struct<"
                + ",".join(f"{field['name']}:{_simple_type(field['type'])}" for field in fields)
                + ">"
            )
        case _:
            raise Damaged(f"a table has a column of the type {kind}, which Kappa does not write")


def _local_path(uri: str) -> str:
    # delta-rs returns paths escaped, with or without the scheme.
    return unquote(uri.removeprefix("file://"))
