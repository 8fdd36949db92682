"""Finds and reads the log files of the platform's processes and of each build's job."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from kappa.base.errors import UsageError, near_or_all
from kappa.base.log_lines import error_in, named_level
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.rollout_numbers import build_named
from kappa.replay.rollout.state import State
from kappa.state.store import Store

OWN_LOGS = ("supervisor", "broker", "verification", "http", "archiver", "courier", "collector")
# The roles of builds that are needed, in the order of their logs.
_ROLES = ("live", "candidate", "idle")
_ENDED_ROLES = {Phase.FAILED: "failed", Phase.ABANDONED: "abandoned"}
_BLOCK = 65_536
# No process reports that a file grows: the file is looked at this often.
_LOOK_SECONDS = 0.2
_LOOKS_A_SECOND = 5
# The words by which Java, Python and Kappa mark what is wrong, near the beginning of a line.
_LEVEL = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|WARN(?:ING)?|error:|Traceback)(?!\w)|\w+(?:Error|Exception):"
)
_LEVEL_WITHIN = 200
# The end of a log in which lines of a level are looked for, and more lines than it may have.
_SEARCHED_BYTES = 16 << 20
_MOST_LINES = 1 << 30
_STAMP_BYTES = 32
# The part of a log that is read for its end, and the lines of it that are shown.
_END_BYTES = 1 << 16
_SEARCHED_LINES = 400
_END_LINES = 10
# The time and the level with which a line of Kappa or Spark begins, and the rest of the line.
_COLUMNS = re.compile(r"(\d{4}-\d\d-\d\dT\S{1,20}) +([A-Z]{4,5}) (.*)", re.DOTALL)
# The time with which a line begins: of Kappa and Spark in ISO 8601, of the broker in brackets.
_STAMP = re.compile(rb"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")


def log_file(store: Store, state: State, name: str) -> Path:
    """Returns the log file of a build, or of a process of the platform.

    The processes are `supervisor`, `broker`, `verification`, `http`, `archiver`, `courier` and
    `collector`. If `name` is a pipeline, the build is the pipeline's candidate. Without a
    candidate, it is the live build, and without a live build, the idle build. If `name` is the
    number of a rollout, the build is the rollout's build. The log of an overlay is the log of the
    build that folds its tables. Raises UsageError if `name` is neither a process nor a build, or if
    there is no log yet.
    """
    name = build_named(state, name)
    candidate = state.active(name)
    build = state.folded_by(
        candidate.build
        if candidate is not None
        else state.serving.get(name) or state.idle.get(name, name)
    )
    path = _log_of(store, build)
    if build not in OWN_LOGS and build not in state.versions:
        known = [*OWN_LOGS, *sorted({*state.serving, *state.wanted_builds()})]
        raise UsageError(f"there is no log of {name}", hint=near_or_all(name, known))
    if not path.exists():
        raise UsageError(f"{build} has written no log yet", hint="start it with: kappa up -d")
    return path


def log_files(store: Store, state: State) -> dict[str, Path]:
    """Returns the existing logs of the platform's processes and of builds, by name.

    The builds are the live, idle and candidate builds.
    """
    builds = sorted({state.folded_by(build) for build in state.wanted_builds()})
    found = {name: _log_of(store, name) for name in (*OWN_LOGS, *builds)}
    return {name: path for name, path in found.items() if path.exists()}


@dataclass(frozen=True, slots=True)
class BuildLog:
    """The log of a build's job.

    `role` is live, candidate or idle. For a build that is no longer needed, it is failed or
    abandoned if the build never served, otherwise earlier. `rollout` is the number of the build's
    last rollout.
    """

    build: str
    pipeline: str
    role: str
    rollout: int


def build_logs(store: Store, state: State) -> tuple[BuildLog, ...]:
    """Lists the existing logs of builds, sorted by pipeline.

    The log of the serving build comes first, then those of the candidate, of the idle build, and
    of earlier builds, the newest first. An overlay has no log.
    """
    written = {path.stem for path in Path(store.local.path("logs")).glob("*.log")}
    roles: dict[str, str] = {}
    for build, role in state.roles.items():
        folding = state.folded_by(build)
        roles[folding] = min(roles.get(folding, role), role, key=_ROLES.index)
    last = {rollout.build: rollout for rollout in state.rollouts}
    found = [
        BuildLog(
            build,
            state.pipelines[build],
            roles.get(build) or _ENDED_ROLES.get(last[build].phase, "earlier"),
            last[build].number,
        )
        for build in reversed([*state.versions])
        if build in written
    ]
    return tuple(sorted(found, key=lambda each: (each.pipeline, _rank_of(each.role))))


def _rank_of(role: str) -> int:
    return _ROLES.index(role) if role in _ROLES else len(_ROLES)


def _log_of(store: Store, name: str) -> Path:
    return store.local.path(f"logs/{name}.log")


def follow_files(
    find: Callable[[], Mapping[str, Path]], positions: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yields the lines that are appended to files, forever, as (name of the file, lines).

    `find` returns the files by name, and is called every second. A new file is read from its start.
    For a file in `positions`, reading begins at the given byte offset. A line is yielded once the
    line is complete.
    """
    looks, files, at = 0, dict[str, Path](), dict(positions)
    while True:
        if looks % _LOOKS_A_SECOND == 0:
            files = dict(find())
        looks += 1
        for name, path in files.items():
            lines, at[name] = _lines_since(path, at.get(name, 0))
            if lines:
                yield name, lines
        time.sleep(_LOOK_SECONDS)


def _lines_since(path: Path, position: int) -> tuple[bytes, int]:
    """Returns the complete lines of a file after a byte position, and the position of their end."""
    if not path.exists():
        return b"", 0
    with path.open("rb") as file:
        # A log that has grown too large is moved aside, and a shorter log takes its place.
        start = file.seek(position if file.seek(0, os.SEEK_END) >= position else 0)
        whole, ended, _ = file.read().rpartition(b"\n")
    return whole + ended, start + len(whole + ended)


def last_lines(path: Path, count: int, *, most_bytes: int | None = None) -> tuple[bytes, int]:
    """Returns the last `count` lines of a file, and the byte position of the file's end.

    If `most_bytes` is given, only about that many bytes at the end of the file are read.
    """
    with path.open("rb") as file:
        end = begin = file.seek(0, os.SEEK_END)
        least = 0 if most_bytes is None else max(0, end - most_bytes)
        found = b""
        # A line break more than lines: the first line must be whole.
        while begin > least and found.count(b"\n") <= count:
            begin = max(0, begin - _BLOCK)
            file.seek(begin)
            found = file.read(end - begin)
        return b"".join(found.splitlines(keepends=True)[-count:] if count else []), end


def level_of(line: str) -> str:
    """Returns the level of a log line: "error", "warning", or "" for any other line. Pure."""
    if (named := named_level(line)) is not None:
        return named
    found = _LEVEL.search(line[:_LEVEL_WITHIN])
    return "" if found is None else "warning" if found[0].upper().startswith("WARN") else "error"


class LogLevel(StrEnum):
    """The lowest level of the lines to show."""

    WARNING = "warning"
    ERROR = "error"


class LevelFilter:
    """Selects the lines of a log by level, across successive blocks of a growing log."""

    def __init__(self, least: LogLevel | None) -> None:
        """Creates a filter for lines of level `least` or above; None selects all lines.

        The first block that is filtered must begin at the start of a line.
        """
        self._kept = frozenset({"error"} if least is LogLevel.ERROR else {"warning", "error"})
        self._keeps_all = least is None
        self._level = ""

    def has(self, level: str) -> bool:
        """Returns True if the filter selects lines of this level."""
        return self._keeps_all or level in self._kept

    def leveled_lines(self, lines: Iterable[str]) -> list[tuple[str, str]]:
        """Returns the selected lines, each with its level.

        If a line begins with white space, as in a traceback, it has the level of the line before.
        """
        found = []
        for line in lines:
            if not line[:1].isspace():
                self._level = level_of(line)
            if self.has(self._level):
                found.append((self._level, line))
        return found

    def kept_bytes(self, content: bytes) -> bytes:
        """Returns the selected lines of a block. The block must consist of complete lines."""
        if self._keeps_all:
            return content
        lines = content.decode(errors="surrogateescape").splitlines(keepends=True)
        kept = (line for _, line in self.leveled_lines(lines))
        return "".join(kept).encode(errors="surrogateescape")


def last_leveled_lines(path: Path, count: int, least: LogLevel | None) -> tuple[bytes, int]:
    """Returns the last `count` lines of level `least` or above, and the position of the file's end.

    If `least` is None, all lines count. Otherwise only the last 16 MiB of the file are searched.
    """
    if least is None:
        return last_lines(path, count)
    text, end = last_lines(path, _MOST_LINES, most_bytes=_SEARCHED_BYTES)
    kept = LevelFilter(least).kept_bytes(text).splitlines(keepends=True)
    return b"".join(kept[-count:] if count else []), end


@dataclass(frozen=True, slots=True)
class LogPart:
    """Selected lines of a log, each with its level, and facts about the part that was read.

    `counts` is the number of lines of the part by level, including lines that were not selected.
    `lines` contains all selected lines between the byte positions `begin` and `end`. `size` is the
    size of the file in bytes. `written_at` is the time of the last write to the file.
    """

    lines: tuple[tuple[str, str], ...]
    counts: Mapping[str, int]
    begin: int
    end: int
    size: int
    written_at: datetime


def log_part(
    path: Path,
    *,
    least: LogLevel | None = None,
    search: str = "",
    start: int | None = None,
    before: int | None = None,
    most_lines: int,
    most_bytes: int,
) -> LogPart:
    """Returns selected lines of a log: the first ones after a byte, or the last ones before a byte.

    With `start`, the first selected lines from byte `start` on are returned. Otherwise the last
    selected lines before byte `before`, or before the end of the file, are returned. At most
    `most_bytes` bytes are read, and at most `most_lines` lines are returned. `least` selects lines
    of this level or above. `search` selects lines that contain this text; upper and lower case do
    not matter.
    """
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        if start is not None:
            first = min(start, stat.st_size)
            last = min(stat.st_size, first + most_bytes)
        else:
            last = stat.st_size if before is None else min(before, stat.st_size)
            first = max(0, last - most_bytes)
        file.seek(first)
        content = file.read(last - first)
    if start is None and first > 0 and b"\n" in content[:-1]:
        # The first line may have begun earlier, unless the line fills the whole part.
        whole = content.partition(b"\n")[2]
        first, content = last - len(whole), whole
    elif start is not None and last < stat.st_size and b"\n" in content:
        content = content[: content.rindex(b"\n") + 1]
    lines = content.splitlines(keepends=True)
    texts = (line.decode(errors="replace").rstrip("\r\n") for line in lines)
    counts: dict[str, int] = {}
    found: list[tuple[int, int, str, str]] = []
    wanted, kept, at = search.casefold(), LevelFilter(least), first
    for line, (level, text) in zip(lines, LevelFilter(None).leveled_lines(texts), strict=True):
        counts[level] = counts.get(level, 0) + 1
        if kept.has(level) and wanted in text.casefold():
            found.append((at, at + len(line), level, text))
        at += len(line)
    shown = found[:most_lines] if start is not None else found[-most_lines:]
    is_cut = len(shown) < len(found)
    return LogPart(
        tuple((level, text) for _, _, level, text in shown),
        counts,
        shown[0][0] if is_cut and start is None else first,
        shown[-1][1] if is_cut and start is not None else at,
        stat.st_size,
        datetime.fromtimestamp(stat.st_mtime, UTC),
    )


def log_columns(line: str) -> tuple[str, str, str]:
    """Splits a log line into time, level and text. Pure.

    If the line does not begin with a time and a level, the first two parts are empty.
    """
    found = _COLUMNS.fullmatch(line)
    return ("", "", line) if found is None else (found[1], found[2], found[3])


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The last lines of a log, each with its level, and the text of the last error near the end.

    `error` is "" if there is no error in the last 64 KiB.
    """

    error: str
    lines: tuple[tuple[str, str], ...]


def log_end(path: Path) -> LogEnd:
    """Returns the end of a log of any size. Raises OSError if the file cannot be read."""
    part = log_part(path, most_lines=_SEARCHED_LINES, most_bytes=_END_BYTES)
    return LogEnd(last_error(part.lines), part.lines[-_END_LINES:])


def last_error(lines: Sequence[tuple[str, str]]) -> str:
    """Returns the text of the last error in log lines with their levels, or "". Pure.

    Of a traceback, this is the line with the exception.
    """
    for level, line in reversed(lines):
        if level == "error" and not line[:1].isspace() and not line.startswith("Traceback"):
            return error_in(line) or log_columns(line)[2]
    return ""


def place_at(path: Path, moment: datetime) -> int:
    """Returns the byte position of the first line of a log at or after a time.

    Returns the end of the log if there is no such line. The lines must be in the order of their
    times. A line without a time belongs to the line before it.
    """
    wanted = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S").encode()
    with path.open("rb") as file:
        low, high = 0, (end := file.seek(0, os.SEEK_END))
        # The first line since the time begins at or after `low`, and before `high` or there.
        while low < high:
            middle = (low + high) // 2
            place, stamp = _next_stamp(file, middle, high)
            if stamp is None or stamp >= wanted:
                high = middle
            else:
                low = place + 1
        place, stamp = _next_stamp(file, low, low + _BLOCK)
        return place if stamp is not None else end if low + _BLOCK >= end else low


def _next_stamp(file: BinaryIO, begin: int, end: int) -> tuple[int, bytes | None]:
    """Finds the first line that begins with a time, between the byte positions `begin` and `end`.

    Returns the position and the time of the line. The time is None if there is no such line.
    """
    at = max(0, begin - 1)
    file.seek(at)
    content = file.read(min(_BLOCK, end - at + _STAMP_BYTES))
    # A line begins at the start of the file, or after a line's end.
    place = 0 if begin == 0 else content.find(b"\n") + 1
    while place or begin == 0:
        found = _STAMP.match(content, place)
        if at + place >= end:
            break
        if found is not None:
            return at + place, b" ".join(found.groups())
        place = content.find(b"\n", place) + 1
        if not place:
            break
    return end, None
