"""The logs of the supervisor, the broker, verifications, and each build's job."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from kappa.base.errors import UsageError, near_or_all
from kappa.base.log_lines import named_level
from kappa.replay.rollout.rollout_numbers import build_named
from kappa.replay.rollout.state import State
from kappa.state.store import Store

OWN_LOGS = ("supervisor", "broker", "verification", "http", "archiver", "courier", "collector")
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


def log_file(store: Store, state: State, name: str) -> Path:
    """Returns the log of a build, or of a process of the platform.

    Processes of the platform are `supervisor`, `broker`, `verification`, `http`, `archiver`,
    `courier` and `collector`. The name of a pipeline means the candidate, the live or the kept
    build; the number of a rollout means the build. The log of an overlay is the log of the
    build that folds the tables. Raises UsageError if nothing has that name, or there is no log
    yet.
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
    """Returns the logs that exist, by name: of the platform's processes, and of wanted builds."""
    builds = sorted({state.folded_by(build) for build in state.wanted_builds()})
    found = {name: _log_of(store, name) for name in (*OWN_LOGS, *builds)}
    return {name: path for name, path in found.items() if path.exists()}


def _log_of(store: Store, name: str) -> Path:
    return store.local.path(f"logs/{name}.log")


def follow_files(
    find: Callable[[], Mapping[str, Path]], positions: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yields the lines that are appended to files, each with the file's name, forever.

    `find` returns the files by name, and is called each second: a file that is new is read from its
    start, the others from `positions`. A line is yielded when the line is whole.
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
    """Returns the whole lines of a file after a position, and the position after these lines."""
    if not path.exists():
        return b"", 0
    with path.open("rb") as file:
        # A log that has grown too large is moved aside, and a shorter log takes its place.
        start = file.seek(position if file.seek(0, os.SEEK_END) >= position else 0)
        whole, ended, _ = file.read().rpartition(b"\n")
    return whole + ended, start + len(whole + ended)


def last_lines(path: Path, count: int, *, most_bytes: int | None = None) -> tuple[bytes, int]:
    """Returns the last lines of a file, and the position after them.

    If the lines have more than `most_bytes`, only the last bytes are read.
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
    """Returns the level that a line of a log names: error, warning, or "" for any other. Pure."""
    if (named := named_level(line)) is not None:
        return named
    found = _LEVEL.search(line[:_LEVEL_WITHIN])
    return "" if found is None else "warning" if found[0].upper().startswith("WARN") else "error"


class LogLevel(StrEnum):
    """The least level of the lines that are shown."""

    WARNING = "warning"
    ERROR = "error"


class LevelFilter:
    """The lines of a log that have a level, across the blocks of a log that grows."""

    def __init__(self, least: LogLevel | None) -> None:
        """Begins at the start of a line; without a `least` level all lines are kept."""
        self._kept = frozenset({"error"} if least is LogLevel.ERROR else {"warning", "error"})
        self._keeps_all = least is None
        self._level = ""

    def leveled_lines(self, lines: Iterable[str]) -> list[tuple[str, str]]:
        """Returns the lines that are kept, each with its level.

        A line that begins with a blank, as those of a traceback, has the level of the line before.
        """
        found = []
        for line in lines:
            if not line[:1].isspace():
                self._level = level_of(line)
            if self._keeps_all or self._level in self._kept:
                found.append((self._level, line))
        return found

    def kept_bytes(self, content: bytes) -> bytes:
        """Returns the lines of whole lines that are kept."""
        if self._keeps_all:
            return content
        lines = content.decode(errors="surrogateescape").splitlines(keepends=True)
        kept = (line for _, line in self.leveled_lines(lines))
        return "".join(kept).encode(errors="surrogateescape")


def last_leveled_lines(path: Path, count: int, least: LogLevel | None) -> tuple[bytes, int]:
    """Returns the last lines of a file that have a level, and the end of the file.

    A level is looked for in the last 16 MiB of the file.
    """
    if least is None:
        return last_lines(path, count)
    text, end = last_lines(path, _MOST_LINES, most_bytes=_SEARCHED_BYTES)
    kept = LevelFilter(least).kept_bytes(text).splitlines(keepends=True)
    return b"".join(kept[-count:] if count else []), end
