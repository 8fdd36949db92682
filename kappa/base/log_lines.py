"""Lines in the logs of processes. Each line contains the time, a level and its writer's name.

The format is the same as that of Java's lines in the same logs
(kappa/engine/spark/log4j2.properties). So `kappa logs --level` and the page recognize the levels of
Kappa's lines and of Java's lines. An example is `2026-01-31T14:05:00.123Z WARN kappa: no answer`.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum

_WRITER = "kappa"
_ERROR = re.compile(rf"\S+ ERROR {_WRITER}: (.*)")
_LEVEL = re.compile(r"\S+ +(?:(TRACE|DEBUG|INFO)|(WARN)|(ERROR|FATAL)) ")


class Level(StrEnum):
    """The level of a log line, with Java's names."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


def log_line(text: str, level: Level) -> str:
    """Formats a text as a log line, with the time, the level and the writer's name.

    The line has no newline at its end. If the text has several lines, all lines after the first are
    indented.
    """
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = "\n  ".join(text.rstrip("\n").split("\n"))
    return f"{at} {level} {_WRITER}: {shown}"


def write_log_line(text: str, level: Level = Level.INFO) -> None:
    """Writes a text to this process's log (stderr). If the disk is full, the text is lost."""
    with suppress(OSError):
        print(log_line(text, level), file=sys.stderr, flush=True)


def error_in(line: str) -> str:
    """Returns the text of a log line that `write_log_line` wrote with the level ERROR. Pure.

    Returns "" for any other line.
    """
    found = _ERROR.fullmatch(line)
    return "" if found is None else found[1]


def named_level(line: str) -> str | None:
    """Returns the level in a log line: "error", "warning", or "" for a lower level. Pure.

    Returns None if the line does not begin with a time and a level.
    """
    found = _LEVEL.match(line)
    return None if found is None else "warning" if found[2] else "error" if found[3] else ""
