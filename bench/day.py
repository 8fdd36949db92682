"""Measures a long run on live events: which sizes grow, and whether queries become slower.

    python bench --cell day

The whole platform runs until a number of slices or a number of minutes is reached. At intervals,
the cell counts files on the disk, and measures the job's memory and the duration of a query. If the
rows that are served at the end equal the oracle's, the cell reports the medians of the first and of
the last quarter of the run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cells import Cell
from living import Platform
from screen import Report, table

from kappa.serving.query.query import answer_query
from kappa.state.build import folder_of_build as build_folder

RATE, KEYS, SLICES = 2_000, 16_384, 20_000
_FIRST_EVENTS = 200_000
_LOOK_SECONDS = 5.0
_ASKED = "select count(*), sum(bids)::bigint from totals"


@dataclass(frozen=True, slots=True)
class Look:
    """The measurements at one moment.

    `slices` is the number of slices so far. The other fields are numbers of files, sizes in bytes,
    and the duration of a query in seconds.
    """

    slices: int
    table_files: int
    log_files: int
    build_bytes: int
    checkpoint_bytes: int
    root_files: int
    job_resident: int
    query: float


# What is told of each, how it is read from a look, and how it is written.
_TOLD: tuple[tuple[str, Callable[[Look], float], str], ...] = (
    ("files of the table", lambda look: look.table_files, "{:,.0f}"),
    ("files of its log", lambda look: look.log_files, "{:,.0f}"),
    ("all the build keeps, MiB", lambda look: look.build_bytes / 2**20, "{:,.1f}"),
    ("its checkpoint, MiB", lambda look: look.checkpoint_bytes / 2**20, "{:,.2f}"),
    (
        "files below the root, the broker's and the archive's apart",
        lambda look: look.root_files,
        "{:,.0f}",
    ),
    ("memory of the job, GiB", lambda look: look.job_resident / 2**30, "{:.2f}"),
    ("a query, ms", lambda look: look.query * 1000, "{:.0f}"),
)


def main(home: Path, minutes: int) -> Report | None:
    """Measures for at most `minutes` minutes.

    Returns None if the served rows differ from the oracle's.
    """
    platform = Platform(home, Cell("day", "totals", _FIRST_EVENTS, KEYS, 1, ()))
    looks: list[Look] = []
    with platform.up():
        first, ends = platform.frontier().number, time.monotonic() + minutes * 60
        with platform.live_events(
            RATE, platform.folder / "ledger.parquet", platform.folder / "answers.jsonl"
        ):
            while time.monotonic() < ends and (not looks or looks[-1].slices < SLICES):
                time.sleep(_LOOK_SECONDS)
                looks.append(_look(platform, first))
        if not platform.is_right():
            return None
    shutil.rmtree(platform.folder)
    return _report(looks, minutes)


def _look(platform: Platform, first: int) -> Look:
    build = platform.store.path(build_folder(platform.live))
    begun = time.monotonic()
    answer_query(platform.store, _ASKED)
    took = time.monotonic() - begun
    table = _sizes(build / "tables" / "totals")
    others = [
        path
        for path in _sizes(platform.store.folder)
        if not path.is_relative_to(platform.store.path("broker"))
        and not path.is_relative_to(platform.store.path("archive"))
    ]
    return Look(
        platform.frontier().number - first,
        sum(path.suffix == ".parquet" and "_delta_log" not in path.parts for path in table),
        sum("_delta_log" in path.parts for path in table),
        sum(_sizes(build).values()),
        sum(_sizes(build / "checkpoint").values()),
        len(others),
        platform.taken()["job"].resident,
        took,
    )


def _sizes(folder: Path) -> dict[Path, int]:
    """Maps each file below a folder to its size in bytes. Files that vanish are left out."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            try:
                found[path] = path.stat().st_size
            except FileNotFoundError:
                continue
    return found


def _report(looks: Sequence[Look], minutes: int) -> Report:
    # What a maintenance sweeps away comes and goes, so a quarter is told by its median.
    quarter = max(1, len(looks) // 4)
    rows = []
    for name, of, form in _TOLD:
        early, late = (median(map(of, part)) for part in (looks[:quarter], looks[-quarter:]))
        rows.append(
            (
                name,
                form.format(early),
                form.format(late),
                form.format(max(map(of, looks))),
                f"{late / early:.2f}" if early else "-",
            )
        )
    told = (
        f"{looks[-1].slices:,} slices of live events, {RATE:,} a second, in at most {minutes} "
        "minutes"
    )
    figures = table(("what", "first", "last", "most", "last / first"), rows)
    return Report(
        f"bench day, {told}, last quarter against the first: "
        f"{', '.join(f'{row[0]} {row[4]}' for row in rows)}",
        looks,
        f"{told}: medians of the first and of the last quarter.\n\n{figures}",
    )
