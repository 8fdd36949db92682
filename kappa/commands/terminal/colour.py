"""Colours on a terminal: states, the signs of diffs, warnings and errors.

All functions except `has_colour` are pure. Output to pipes and files has no colours, and no output
has colours while NO_COLOR is set (https://no-color.org).
"""

from __future__ import annotations

import os
import re
from typing import TextIO

_RED, _GREEN, _YELLOW, _CYAN, _DIM = "31", "32", "33", "36", "2"
# The colour of a state by its first word.
_STATES = {
    **dict.fromkeys(("serving", "served", "proved", "following", "deleted"), _GREEN),
    **dict.fromkeys(
        ("replaying", "verifying", "ready", "holding", "starts", "sending", "retrying"), _YELLOW
    ),
    **dict.fromkeys(("stopped", "failed", "not", "fails"), _RED),
    **dict.fromkeys(("kept", "abandoned", "ended", "retired", "removed"), _DIM),
}
_PLAN_LINES = (
    (re.compile(r"    \+"), _GREEN),
    (re.compile(r"    -"), _RED),
    (re.compile(r"(  |\S+: )refused: "), _RED),
    (re.compile(r"  readers: .* \(breaking\)$"), _RED),
    (re.compile(r"  warning: "), _YELLOW),
)
_HEADING_LINES = ((re.compile(r"DAMAGED: "), _RED), (re.compile(r"WARNING: "), _YELLOW))
_ROW_KINDS = {"added": _GREEN, "removed": _RED, "changed": _YELLOW}
_ROW_KIND = re.compile(r"  (added|removed|changed)[:,]")


def has_colour(stream: TextIO | None) -> bool:
    """Returns True if a stream is a terminal, and neither NO_COLOR nor TERM forbids colours."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not is_plain


def coloured(text: str, colour: str) -> str:
    """Returns a text with the escape codes for a colour.

    `colour` is the number of an ANSI colour, such as "31" for red.
    """
    return f"\x1b[{colour}m{text}\x1b[0m" if text else text


def paint_state(column: str, text: str) -> str:
    """Returns the text of a cell in a listing, with a colour if `column` is `state`."""
    if column != "state":
        return text
    word = re.split(r"[ ,]", text, maxsplit=1)[0]
    # A pause outweighs the state before.
    colour = _YELLOW if text.endswith("paused") else _STATES.get(word)
    return text if colour is None else coloured(text, colour)


def paint_plan(text: str) -> str:
    """Returns the text of a plan, with coloured diffs, refusals and warnings."""
    return _painted_lines(text, _PLAN_LINES)


def paint_heading(text: str) -> str:
    """Returns the heading of a status, with coloured warnings."""
    return _painted_lines(text, _HEADING_LINES)


def paint_rows(text: str) -> str:
    """Returns the text of a comparison, with coloured added, removed and changed rows."""
    lines, colour = [], None
    for line in text.splitlines(keepends=True):
        if (kind := _ROW_KIND.match(line)) is not None:
            colour = _ROW_KINDS[kind[1]]
        elif not line.startswith("    "):
            colour = None
        lines.append(line if colour is None else _coloured_line(line, colour))
    return "".join(lines)


def paint_failure(message: str, hint: str) -> tuple[str, str]:
    """Returns the line of an error and the line of its hint, each with a coloured first word."""
    return f"{coloured('error:', _RED)} {message}", f"{coloured('hint:', _CYAN)} {hint}"


def _painted_lines(text: str, patterns: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    def painted(line: str) -> str:
        colour = next((colour for pattern, colour in patterns if pattern.match(line)), None)
        return line if colour is None else _coloured_line(line, colour)

    return "".join(map(painted, text.splitlines(keepends=True)))


def _coloured_line(line: str, colour: str) -> str:
    text = line.rstrip("\n")
    return coloured(text, colour) + line[len(text) :]
