"""Formats the results of a run: tables for the terminal or for a page, with the conditions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill

from cells import TASKS
from figures import Figure, Spread, figures
from rich.table import Table as Grid
from rounds import Run

# A release in the changelog, the section of a cell in a document, and the day of its figures.
_RELEASE = re.compile(r"^## (?P<version>\d\S*) \((?P<day>\d{4}-\d\d-\d\d)\)$", re.MULTILINE)
_SECTION = re.compile(
    r"(?P<begin><!-- bench:(?P<cell>\S+) -->\n)(?P<text>.*?)(?P<end><!-- /bench:(?P=cell) -->)",
    re.DOTALL,
)
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)\s+\d\d:\d\d\s+UTC")
_OLDER = re.compile(r"\*Older than release [^*]*\*\n\n")
# Absolute figures count below it: above, others were at work on the machine.
QUIET_LOAD = 0.5
_HEADINGS = (
    "rival",
    "rounds",
    "seconds",
    "events/s",
    "events/s, warm",
    "CPU us/event",
    "peak RSS, GiB",
    "Kappa is faster by",
    "warm, by",
    "with less CPU, by",
)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a cell without rivals.

    `line` is a summary in one line, `measured` contains all measurements, and `page` is a section
    of a document in Markdown. `python bench` writes the measurements as JSON, together with the
    load average before the cell.
    """

    line: str
    measured: object
    page: str


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: Collection[int] = (0,)
) -> str:
    """Returns a table as Markdown.

    The columns at the positions `words` are aligned as text, and all other columns as numbers.
    """
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    marks = ("---" if place in words else "---:" for place in range(len(head)))
    return "\n".join((lines[0], f"|{'|'.join(marks)}|", *lines[1:]))


def spread_of(values: Sequence[float], form: str) -> str:
    """Returns the spread of some values as a text like `5.1 (4.9-5.6)`."""
    return _spread(Spread.of(values), form)


def told(run: Run, rivals: Sequence[str]) -> tuple[Figure, ...]:
    """Returns the figures of the rivals that were run or are missing, in the order of `rivals`."""
    asked = {each.rival for each in run.rounds} | set(run.missing)
    return figures(run.rounds, [rival for rival in rivals if rival in asked], run.missing)


def title(run: Run) -> str:
    """Returns the title of a run, which describes the measured task."""
    return f"{run.cell}: {TASKS[run.task].what}; {run.events:,} events, {run.keys:,} keys"


def load(run: Run) -> Spread | None:
    """Returns the spread of the load averages before the rounds."""
    return Spread.of(each.load for each in run.rounds)


def footing(run: Run, cores: int) -> str:
    """Returns the conditions of the figures as text: machine, cores, load, code, and time."""
    before = load(run)
    busy = (
        ""
        if before is None or before.most < QUIET_LOAD
        else f" (above {QUIET_LOAD}: only ratios count)"
    )
    at = (
        ""
        if before is None
        else f"; load average before a round {before.least:.2f} to {before.most:.2f}{busy}"
    )
    return f"{run.machine}, {cores} cores{at}; code {run.code}, begun {run.begun}"


def rows(found: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Returns the rows of the table: one row per rival, with one cell per heading."""
    return [_row(figure) for figure in found]


def grid(run: Run, found: Sequence[Figure], cores: int) -> Grid:
    """Returns the table of results as a Rich table for the terminal."""
    made = Grid(
        title=title(run), caption=footing(run, cores), title_justify="left", caption_justify="left"
    )
    for place, heading in enumerate(_HEADINGS):
        made.add_column(heading, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows(found):
        made.add_row(*row)
    return made


def refusals(found: Sequence[Figure]) -> list[str]:
    """Returns a line for each rival that lacks figures or rounds, with the reason."""
    return [f"{figure.rival}: {figure.refused}" for figure in found if figure.refused is not None]


def page(run: Run, found: Sequence[Figure], cores: int) -> str:
    """Returns the table of results as Markdown, with the conditions and the versions."""
    lines = [f"**{title(run)}**", "", table(_HEADINGS, rows(found)), ""]
    lines += [footing(run, cores) + ".", *(f"No figure of {text}." for text in refusals(found))]
    return "\n".join([*lines, "", f"{versions(run)}.", ""])


def versions(run: Run) -> str:
    """Returns one line with the versions of each rival's packages."""
    told = (
        f"{rival}: {', '.join(f'{name} {number}' for name, number in each.items())}"
        for rival, each in sorted(run.versions.items())
    )
    return f"versions: {'; '.join(told)}"


def per_core(found: Sequence[Figure], cores: int) -> list[str]:
    """Returns a line per rival with its warm events per second, divided by the number of cores."""
    return [
        f"{figure.rival}: {figure.warm.median / cores:,.0f} events a second per core, warm"
        for figure in found
        if figure.warm is not None
    ]


def _row(figure: Figure) -> tuple[str, ...]:
    if not figure.rounds:
        return (figure.rival, "-", *[""] * (len(_HEADINGS) - 2))
    return (
        figure.rival,
        str(figure.rounds),
        _spread(figure.wall, "{:.1f}"),
        _spread(figure.cold, "{:,.0f}"),
        _spread(figure.warm, "{:,.0f}"),
        _spread(figure.cpu, "{:.2f}"),
        f"{figure.rss / 2**30:.2f}",
        *(
            _spread(ratio, "{:.3g}")
            for ratio in (figure.cold_ratio, figure.warm_ratio, figure.cpu_ratio)
        ),
    )


def _spread(spread: Spread | None, form: str) -> str:
    """Returns a spread as a text like `5.1 (4.9-5.6)`."""
    if spread is None:
        return ""
    least, middle, most = (
        form.format(value) for value in (spread.least, spread.median, spread.most)
    )
    return middle if least == most else f"{middle} ({least}-{most})"


def placed(document: str, cell: str, section: str) -> str:
    """Returns the document with the new `section` between the marks of the cell.

    Lines of text in the section get at most 100 characters. Raises ValueError if the document does
    not contain the marks.
    """
    begin, end = f"<!-- bench:{cell} -->", f"<!-- /bench:{cell} -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(
            f"the document has no place for {cell}: put {begin} and {end} where it shall stand"
        )
    lines = "\n".join(
        line if line.startswith("|") else fill(line, 100, break_on_hyphens=False)
        for line in section.strip().splitlines()
    )
    return f"{before}{begin}\n{lines}\n{end}{after}"


def with_ages(document: str, changelog: str) -> str:
    """Returns the document with a note at each section that is older than the newest release.

    Notes at other sections are removed. Raises ValueError if the changelog has no release.
    """
    release = _RELEASE.search(changelog)
    if release is None:
        raise ValueError("the changelog has no release")

    def marked(section: re.Match[str]) -> str:
        text = _OLDER.sub("", section["text"], count=1)
        newest = max(_DAY.findall(text), default=release["day"])
        mark = f"*Older than release {release['version']}: these figures are of earlier code.*\n\n"
        is_older = newest < release["day"]
        return f"{section['begin']}{mark if is_older else ''}{text}{section['end']}"

    return _SECTION.sub(marked, document)
