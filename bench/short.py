"""Measures a short replay as a user experiences it: from a command to the served rows.

    python bench --cell short

A million small records are sent to a platform with the default settings. A pipeline with three
tables is deployed, then replayed unchanged, and then deployed with a correction. Each command is
timed from its start to its end, when the new build serves. The served rows must equal DuckDB's
result over the events.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import duckdb
from ground import say
from project import Project
from screen import Report, spread_of, table

from kappa.kafka.producer import ProducedRecord
from kappa.replay.rollout.current_state import current_state
from kappa.serving.query.query import answer_query
from kappa.state.build import folder_of_build

_TARGETS = {
    "deploy of a new pipeline": 15.0,
    "the law of slices, of that": 5.0,
    "the same replayed": 8.0,
    "deploy of a correction": 15.0,
}
# What a job prints of each slice (engine/job/bounded_legs.py).
_SLICE = re.compile(
    r"^\S+ INFO kappa: "
    r"slice \d+ of \d+: (?P<offsets>\d+) offsets in (?P<s>[\d.]+) s, ",
    re.MULTILINE,
)
_LAW = re.compile(r"give the same rows, (?P<seconds>[\d.]+) s")
_PIPELINE = """
from pyspark.sql import functions as F

from kappa import Table, Topic, count, max_, pipeline, sum_

VISITS = Topic(
    "visits",
    key="who",
    partitions=4,
    event="id bigint not null, who int not null, page int, ms int",
)


@pipeline(
    reads={{"visits": VISITS}},
    writes=[
        Table("pages", keys=("page",), fold={{"visits": count(), "ms": sum_("ms")}}),
        Table("people", keys=("who",), fold={{"visits": count(), "slowest": max_("ms")}}),
        Table("slow"),
    ],
)
def web(visits):
    long = visits.where("ms >= {least}")
    return {{
        "pages": visits,
        "people": long,
        "slow": visits.where("ms >= 950").select("id", "who", "ms"),
    }}
"""
_WANTED = {
    "pages": "select page, count(*), sum(ms)::bigint from sent group by page",
    "people": "select who, count(*), max(ms) from sent where ms >= {least} group by who",
    "slow": "select id, who, ms from sent where ms >= 950",
}
_SERVED = {
    "pages": "select page, visits::bigint, ms::bigint from pages",
    "people": "select who, visits::bigint, slowest from people",
    "slow": "select id, who, ms from slow",
}
_SENT = """
    create table sent as
    select i as id, (hash(i, 1) % 20000)::int as who, (hash(i, 2) % 1000)::int as page,
        (hash(i, 3) % 1000)::int as ms
    from range({events}) t(i)
"""


def main(home: Path, events: int) -> Report | None:
    """Measures the commands. Returns None if the served rows differ from DuckDB's result."""
    took: dict[str, list[float]] = defaultdict(list)
    slices: dict[str, list[tuple[int, float]]] = {}
    with duckdb.connect() as oracle:
        oracle.execute(_SENT.format(events=events))
        at = Project(home / "short")
        with at.ended():
            _declare(at, 0)
            at.kappa("up", "-d")
            at.kappa("topics", "create")
            at.log.produce(_records(oracle), "visits")
            at.wait_for_spares()
            for number, (what, arguments) in enumerate(
                (
                    ("deploy of a new pipeline", ("deploy", "--yes")),
                    ("the same replayed", ("replay", "web", "--yes")),
                    ("deploy of a correction", ("deploy", "--yes")),
                )
            ):
                least = 100 * (number // 2)
                _declare(at, least)
                at.wait_for_spares()
                begun = time.monotonic()
                told = at.typed(*arguments)
                took[what].append(time.monotonic() - begun)
                if number == 0 and (law := _LAW.search(told)) is not None:
                    took["the law of slices, of that"].append(float(law["seconds"]))
                slices[what] = _slices(at)
                say(f"{what}: {took[what][-1]:.1f} s; slices {slices[what]}")
                wrong = _wrong(oracle, at, least)
                if wrong is not None:
                    say(f"no figure: what serves is not DuckDB's: {wrong}")
                    return None
    return _report(took, slices, events)


def _declare(at: Project, least: int) -> None:
    (at.folder / "pipelines" / "web.py").write_text(_PIPELINE.format(least=least), encoding="utf-8")


def _records(oracle: duckdb.DuckDBPyConnection) -> Iterator[ProducedRecord]:
    rows = oracle.cursor().execute("select id, who, page, ms from sent order by id")
    while batch := rows.fetchmany(50_000):
        for each, who, page, ms in batch:
            yield ProducedRecord(
                f'{{"id":{each},"who":{who},"page":{page},"ms":{ms}}}'.encode(),
                key=str(who).encode(),
            )


def _slices(at: Project) -> list[tuple[int, float]]:
    """Returns the offsets and the seconds of each slice in the serving build's catch-up."""
    build = current_state(at.store).serving["web"]
    log = at.store.path(f"logs/{build}.log").read_text(errors="replace")
    assert at.store.path(folder_of_build(build)).exists()
    return [(int(found["offsets"]), float(found["s"])) for found in _SLICE.finditer(log)]


def _wrong(oracle: duckdb.DuckDBPyConnection, at: Project, least: int) -> str | None:
    for name, sql in _WANTED.items():
        wanted = sorted(oracle.execute(sql.format(least=least)).fetchall())
        served = sorted(answer_query(at.store, _SERVED[name]).rows)
        if wanted != served:
            return f"{name}: {len(served)} rows for {len(wanted)}"
    return None


def _report(
    took: Mapping[str, Sequence[float]],
    slices: Mapping[str, Sequence[tuple[int, float]]],
    events: int,
) -> Report:
    rows = (
        (name, spread_of(seconds, "{:.1f}"), f"{_TARGETS[name]:.0f}")
        for name, seconds in took.items()
    )
    cut = "\n".join(
        f"{name}: slices of {', '.join(f'{n:,} offsets in {s:.1f} s' for n, s in each)}."
        for name, each in slices.items()
    )
    line = "; ".join(f"{name} {median(seconds):.1f} s" for name, seconds in took.items())
    return Report(
        f"bench short, {events:,} events: {line}",
        {"took": took, "slices": slices},
        f"{table(('what', 'seconds', 'target, s'), rows)}\n\n{cut}\n\n{events:,} events.",
    )
