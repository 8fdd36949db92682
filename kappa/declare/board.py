"""A board as its file declares it: a title and charts, each with its query. Pure."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kappa.base.errors import DeclarationError

# Each chart is a query of its own. More would fit on no screen.
MOST_CHARTS = 24
# Columns of the grid that charts are put into.
COLUMNS = 4
_BOARD_KEYS = ("title", "chart")
_CHART_KEYS = ("title", "kind", "sql", "width")
_HEADER = re.compile(r"\s*\[\[\s*chart\s*\]\]")
_FORM = 'a board is title = "...", and [[chart]] with title, kind and sql for each chart'


class ChartKind(StrEnum):
    """The way in which the rows of a chart's query are drawn."""

    NUMBER = "number"
    LINE = "line"
    BARS = "bars"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of a board; `width` is in columns of the grid."""

    title: str
    kind: ChartKind
    sql: str
    width: int


@dataclass(frozen=True, slots=True)
class Board:
    """One board: its title, and its charts in their order."""

    title: str
    charts: tuple[Chart, ...]


def board_of(content: bytes, file: str) -> Board:
    """Reads a board from the content of its file.

    Raises DeclarationError, which names the file, the chart and the key, if there is a mistake.
    """
    try:
        text = content.decode()
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"{file} is no TOML: {error}", hint=_FORM) from None
    _ensure_known(found, _BOARD_KEYS, file, "a board")
    title = _text(found, "title", file, 'title = "Sales today"')
    charts = found.get("chart", [])
    if not isinstance(charts, list) or not all(isinstance(each, dict) for each in charts):
        raise DeclarationError(
            f"{file}: chart is no list of charts", hint="begin each chart with: [[chart]]"
        )
    if not 0 < len(charts) <= MOST_CHARTS:
        raise DeclarationError(
            f"{file} has {len(charts) or 'no'} charts, and a board has 1 to {MOST_CHARTS}",
            hint="put some into another board" if charts else "begin each chart with: [[chart]]",
        )
    lines = [
        number for number, line in enumerate(text.splitlines(), start=1) if _HEADER.match(line)
    ]
    # A query that has such a line itself leaves all charts without one.
    lines = lines if len(lines) == len(charts) else [0] * len(charts)
    made: dict[str, Chart] = {}
    for number, (each, line) in enumerate(zip(charts, lines, strict=True), start=1):
        where = f"{file}{f':{line}' if line else ''}: chart {number}"
        chart = _chart_of(each, where)
        if chart.title in made:
            raise DeclarationError(
                f"{where} has the title {chart.title!r}, which an earlier chart has",
                hint="give each chart a title of its own",
            )
        made[chart.title] = chart
    return Board(title, tuple(made.values()))


def _chart_of(given: Mapping[str, Any], where: str) -> Chart:
    _ensure_known(given, _CHART_KEYS, where, "a chart")
    title = _text(given, "title", where, 'title = "Orders an hour"')
    kind = _text(given, "kind", where, 'kind = "bars"')
    if kind not in set(ChartKind):
        raise DeclarationError(
            f"{where}: there is no kind {kind!r}", hint=_instead(kind, tuple(ChartKind))
        )
    sql = _text(given, "sql", where, 'sql = "select ..."')
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
            raise DeclarationError(f"{where}: {of} has no key {key!r}", hint=_instead(key, keys))


def _instead(given: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _text(given: Mapping[str, Any], key: str, where: str, example: str) -> str:
    found = given.get(key)
    if isinstance(found, str) and found.strip():
        return found.strip()
    what = f"has no {key}" if found is None else f"has no text as its {key}: {found!r}"
    raise DeclarationError(f"{where} {what}", hint=f"write: {example}")
