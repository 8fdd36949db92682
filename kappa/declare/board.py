"""Boards: dashboards that files of the project declare. A board is a title and charts with queries.

The files are `boards/NAME.toml`, in the folder that contains kappa.toml.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, near_or_all

# Each chart is a query of its own. More charts would fit on no screen.
MOST_CHARTS = 24
# Columns of the grid that holds the charts.
COLUMNS = 4
_BOARD_KEYS = ("title", "chart")
_CHART_KEYS = ("title", "kind", "sql", "width")
_HEADER = re.compile(r"\s*\[\[\s*chart\s*\]\]")
_FORM = 'a board is title = "...", and [[chart]] with title, kind and sql for each chart'
FOLDER = "boards"
# Larger than any board that people write. A board is read at each request.
_MOST_BYTES = 256 << 10


class ChartKind(StrEnum):
    """The form in which a chart shows the rows of its query."""

    NUMBER = "number"
    LINE = "line"
    BARS = "bars"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a board. `width` is its width, as a number of columns of the board's grid.

    `line` is the number of the line at which the chart begins in the board's file, or 0 if it is
    not known.
    """

    title: str
    kind: ChartKind
    sql: str
    width: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Board:
    """A board: its title, and its charts in order."""

    title: str
    charts: tuple[Chart, ...]


def board_of(content: bytes, file: str) -> Board:
    """Parses the content of a board's file.

    Raises DeclarationError, with the file, the chart and the key, if the content is not valid.
    """
    try:
        text = content.decode()
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"{file} is not TOML: {error}", hint=_FORM) from None
    _ensure_known(found, _BOARD_KEYS, file, "a board")
    title = _required_text(found, "title", file, 'title = "Sales today"')
    charts = found.get("chart", [])
    if not isinstance(charts, list) or not all(isinstance(each, dict) for each in charts):
        raise DeclarationError(
            f"{file}: chart is not a list of charts", hint="begin each chart with: [[chart]]"
        )
    if not 0 < len(charts) <= MOST_CHARTS:
        raise DeclarationError(
            f"{file} has {len(charts) or 'no'} charts, and a board has 1 to {MOST_CHARTS}",
            hint="put some into another board" if charts else "begin each chart with: [[chart]]",
        )
    lines = [
        number for number, line in enumerate(text.splitlines(), start=1) if _HEADER.match(line)
    ]
    # If a query itself has a line like a chart's header, no chart is given a line.
    lines = lines if len(lines) == len(charts) else [0] * len(charts)
    made: dict[str, Chart] = {}
    for number, (each, line) in enumerate(zip(charts, lines, strict=True), start=1):
        where = f"{file}{f':{line}' if line else ''}: chart {number}"
        chart = replace(_chart_of(each, where), line=line)
        if chart.title in made:
            raise DeclarationError(
                f"{where} has the title {chart.title!r}, which an earlier chart has",
                hint="give each chart a title of its own",
            )
        made[chart.title] = chart
    return Board(title, tuple(made.values()))


def _chart_of(given: Mapping[str, Any], where: str) -> Chart:
    _ensure_known(given, _CHART_KEYS, where, "a chart")
    title = _required_text(given, "title", where, 'title = "Orders an hour"')
    kind = _required_text(given, "kind", where, 'kind = "bars"')
    if kind not in set(ChartKind):
        raise DeclarationError(
            f"{where}: there is no kind {kind!r}", hint=_suggest_key(kind, tuple(ChartKind))
        )
    sql = _required_text(given, "sql", where, 'sql = "select ..."')
    width = given.get("width", 1 if kind == ChartKind.NUMBER else 2)
    if type(width) is not int or not 1 <= width <= COLUMNS:
        raise DeclarationError(
            f"{where}: width is {width!r}, and the grid has {COLUMNS} columns",
            hint=f"write a whole number from 1 to {COLUMNS}: width = 2",
        )
    return Chart(title, ChartKind(kind), sql, width)


def _ensure_known(given: Collection[str], keys: tuple[str, ...], where: str, of: str) -> None:
    for key in given:
        if key not in keys:
            raise DeclarationError(
                f"{where}: {of} has no key {key!r}", hint=_suggest_key(key, keys)
            )


def _suggest_key(given: str, known: tuple[str, ...]) -> str:
    return near_or_all(given, known)


def _required_text(given: Mapping[str, Any], key: str, where: str, example: str) -> str:
    found = given.get(key)
    if isinstance(found, str) and found.strip():
        return found.strip()
    what = f"has no {key}" if found is None else f"has no text as its {key}: {found!r}"
    raise DeclarationError(f"{where} {what}", hint=f"write: {example}")


def boards_in(project: Path) -> Mapping[str, Board | DeclarationError]:
    """Reads all boards of a project, and returns them by name.

    The name of a board is the name of its file, without the ending. An invalid file does not affect
    other boards: the result contains a DeclarationError instead of that board. If two file names
    are different Unicode forms of the same name, the result contains a DeclarationError under that
    name.
    """
    found: dict[str, Board | DeclarationError] = {}
    for path in sorted((project / FOLDER).glob("*.toml")):
        # Editors keep their own files in the folder, with a point as the first character.
        if path.name.startswith("."):
            continue
        name = board_name(path.stem)
        file = f"{FOLDER}/{name}.toml"
        if name in found:
            found[name] = DeclarationError(
                f"{file} is there twice, and its two names look alike",
                hint="they are two forms of Unicode; rename one of them",
            )
            continue
        try:
            found[name] = board_of(_read_content(path, file), file)
        except DeclarationError as error:
            found[name] = error
    return dict(sorted(found.items()))


def board_name(stem: str) -> str:
    """Returns the name of a board for URLs, normalized to Unicode's form NFC.

    File systems may return the same file name in different forms.
    """
    return unicodedata.normalize(
        "NFC", stem.encode(errors="surrogateescape").decode(errors="replace")
    )


def _read_content(path: Path, file: str) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeclarationError(
            f"{file} cannot be read: {error.strerror}", hint="a board is a file of text"
        ) from None
    if len(content) > _MOST_BYTES:
        raise DeclarationError(
            f"{file} has more than {_MOST_BYTES:,} bytes",
            hint="put some charts into another board, and long queries into views",
        )
    return content
