"""The versions of a Delta table: exact files, columns, and the marks of commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kappa.base.errors import Damaged, unreadable
from kappa.objects.address import exists, files_in, read_file, side_by_side
from kappa.state.mark import Mark, parse_mark
from kappa.tables.delta import LOG_FILE, LOG_FOLDER, attempted, open_version, retried

# Up to this many commits, reading them is faster than opening the table, which reads each twice.
_FEW = 200
_CHECKPOINT = ".checkpoint.parquet"
# Delta's names for types that differ from Spark's simple ones.
_SIMPLE = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def files(path: str, version: int) -> tuple[str, ...]:
    """Lists the exact data files of one version, as absolute paths or URLs.

    Raises Damaged if that version does not exist (any more).
    """
    return retried(lambda: files_of(path, version, open_version(path, version).file_uris))


def files_of(path: str, version: int, listed: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Lists the same of a version that is open at `path`, as delta-rs has `listed` its files."""
    said = attempted(listed, f"the files of {path} version {version} could not be listed")
    return tuple(sorted(map(_local, said)))


def log_of(path: str, version: int) -> tuple[str, ...]:
    """Lists the log files from which a version is read.

    They are the newest checkpoint that is not behind it, if there is one, and the commits since.
    """
    log = f"{path}/{LOG_FOLDER}"
    numbered = sorted(
        (int(found[1]), name)
        for name in files_in(log)
        if (found := LOG_FILE.match(name)) is not None and int(found[1]) <= version
    )
    checkpoints = {number: name for number, name in numbered if name.endswith(_CHECKPOINT)}
    first = max(checkpoints, default=0)
    commits = (name for number, name in numbered if number >= first and name.endswith(".json"))
    names = (*([checkpoints[first]] if first in checkpoints else ()), *commits)
    return tuple(f"{log}/{name}" for name in names)


def files_since(path: str, known: Mapping[int, Collection[str]], version: int) -> tuple[str, ...]:
    """Lists the same, by the commits since the last version whose files are `known`.

    It opens the table where they are too many, or not there.

    Of a version that does not exist any more it may list the files that it had.
    """
    last = max((each for each in known if version - _FEW <= each <= version), default=None)
    found = None if last is None else _after(path, last, frozenset(known[last]), version)
    return files(path, version) if found is None else tuple(sorted(found))


class FileLists:
    """A cache over `files`, which remembers the last version listed of each table."""

    def __init__(self, *, tables: int = 256) -> None:
        """Makes an empty cache, which remembers at most so many tables."""
        self._tables = tables
        self._last: dict[str, tuple[int, tuple[str, ...]]] = {}

    def at(self, path: str, version: int) -> tuple[str, ...]:
        """Lists the files of a version, as `files_since` does."""
        last = self._last.get(path)
        found = files_since(path, {} if last is None else dict([last]), version)
        if last is None or last[0] < version:
            self._last.pop(path, None)
            self._last[path] = version, found
            for forgotten in list(self._last)[: -self._tables]:
                self._last.pop(forgotten, None)
        return found


def _after(path: str, version: int, there: frozenset[str], until: int) -> frozenset[str] | None:
    """Lists the files of version `until`, by those of `version` and the commits since.

    Returns None if one of these commits cannot be read (any more).
    """
    found = set(there)
    between = range(version + 1, until + 1)
    # Upkeep deletes the oldest: if the first is gone, most are.
    first = [_actions(path, number) for number in between[:1]]
    others = between[1:] if first != [None] else ()
    for actions in (*first, *side_by_side(path, lambda number: _actions(path, number), others)):
        if actions is None:
            return None
        for action in actions:
            if "remove" in action:
                found.discard(_file(path, action["remove"]["path"]))
            elif "add" in action:
                found.add(_file(path, action["add"]["path"]))
    return frozenset(found)


def _actions(path: str, version: int) -> list[dict[str, Any]] | None:
    """Returns the actions of a commit, or None if it cannot be read (any more)."""
    try:
        text = read_file(_commit(path, version)).decode()
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError):
        return None


def _file(path: str, named: str) -> str:
    # A commit names its files relative to the table, and escaped.
    return f"{path}/{unquote(named)}"


def _commit(path: str, version: int) -> str:
    return f"{path}/{LOG_FOLDER}/{version:020d}.json"


def touched_files(path: str, version: int, until: int) -> tuple[frozenset[str], bool] | None:
    """Lists the files of version `until` with each row that slices after `version` have changed.

    Other rows may be in them. Commits without a slice, of upkeep and of drains, change no row that
    readers see. The second value is True if such a commit has taken rows of those slices away: a
    drain empties recent rows, and upkeep deletes hidden ones. Returns None if a commit cannot be
    read (any more).
    """
    found, lacks = set[str](), False
    for number in range(version + 1, until + 1):
        actions = _actions(path, number)
        if actions is None:
            return None
        added = {_file(path, each["add"]["path"]) for each in actions if "add" in each}
        removed = {_file(path, each["remove"]["path"]) for each in actions if "remove" in each}
        is_slice = any("txn" in each for each in actions)
        # A slice's rows are in files of its own; those that were rewritten with them follow.
        if is_slice or found & removed:
            moved = (each["remove"] for each in actions if "remove" in each)
            lacks |= not is_slice and any(each.get("dataChange", True) for each in moved)
            found |= added
        found -= removed
    return frozenset(found), lacks


def files_of_commit(path: str, version: int) -> Iterator[Path]:
    """Yields the files that one commit has added, and the commit itself.

    Raises Damaged if it cannot be read.
    """
    commit = _commit(path, version)
    try:
        actions = [json.loads(line) for line in read_file(commit).decode().splitlines()]
    except (OSError, ValueError) as error:
        raise unreadable(
            f"version {version} of {path} cannot be read: {error}",
            error,
            hint="the job is started again, and takes the version back",
        ) from error
    for action in actions:
        if "add" in action:
            yield from _with_checksum(Path(_file(path, action["add"]["path"])))
    yield from _with_checksum(Path(commit))


def _with_checksum(file: Path) -> Iterator[Path]:
    yield file
    # Spark writes it beside, and reads no file of which it is torn.
    beside = file.with_name(f".{file.name}.crc")
    if beside.exists():
        yield beside


def schema(path: str, version: int) -> tuple[tuple[str, str], ...]:
    """Lists the columns of one version: (name, Spark's simple type)."""
    fields = json.loads(retried(lambda: open_version(path, version).schema().to_json()))["fields"]
    return tuple((str(field["name"]), _simple(field["type"])) for field in fields)


def mark_of(path: str, version: int) -> Mark:
    """Returns the mark of the commit that made a version.

    Raises Damaged if the commit carries none, or does not exist (any more).
    """
    return parse_mark(mark_text(path, version), where=f"version {version} of {path}")


def mark_text(path: str, version: int) -> str | None:
    """Returns the text of a commit's mark, or None if it carries none."""
    return commit_info(path, version).get("userMetadata")


def commit_info(path: str, version: int) -> Mapping[str, Any]:
    """Returns what the writer of a version noted in its commit.

    Raises Damaged if the commit does not exist (any more).
    """
    try:
        lines = read_file(_commit(path, version)).decode().splitlines()
        infos = [json.loads(line).get("commitInfo") for line in lines if '"commitInfo"' in line]
    except (OSError, ValueError) as error:
        raise unreadable(
            f"version {version} of {path} cannot be read: {error}",
            error,
            hint="kappa replay makes a new build of it",
        ) from error
    return next((info for info in infos if info), {})


def is_committed(path: str, version: int) -> bool:
    """Returns True if the commit of a version is there, whole or not."""
    return exists(_commit(path, version))


def _simple(kind: object) -> str:
    match kind:
        case str():
            return _SIMPLE.get(kind, kind)
        case {"type": "array", "elementType": element}:
            return f"array<{_simple(element)}>"
        case {"type": "struct", "fields": [*fields]}:
            return (
                "struct<"
                + ",".join(f"{field['name']}:{_simple(field['type'])}" for field in fields)
                + ">"
            )
        case _:
            raise Damaged(f"a table has a column of the type {kind}, which Kappa does not write")


def _local(uri: str) -> str:
    # delta-rs returns paths escaped, with or without the scheme.
    return unquote(uri.removeprefix("file://"))
