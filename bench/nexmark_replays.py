"""Measures a replay of each Nexmark query: events per second and core, and the stored bytes.

    python bench --cell nexmark

The queries are those of tests/nexmark, which docs/explain/nexmark.md describes. Each query is
replayed alone, by a new build with only the tables and views that the query needs, and only from
the topics that these tables read. The rows of the query must equal the rows that DuckDB computes
from the bytes of the log, with independent SQL.

If cargo is installed, q4 is also replayed by a program with feldera's DBSP (scripts/dbsp_q4), from
the same log and with the same comparison.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
from bids import topic_files, warm_page_cache
from figures import Warm
from ground import Ground, ground, say, take_whole
from kappa_job import BUILD, begin_build, declare, fold_command, served_rows, warm_in
from oracle import consume, difference
from rivals import SCRIPTS, Command, NotThereError, ensure_cargo
from screen import Report, table

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "nexmark"))

from auction_events import AUCTION, BID, PARTITIONS, PERSON, auction_events
from auction_oracle import ANSWERS, load_events
from auction_site import auction_site

from kappa.base.errors import KappaError
from kappa.declare.values.columns import Type
from kappa.engine.children.rehearsal import local_pipeline
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.build import folder_of_build
from kappa.state.files.duckdb_access import renew_access
from kappa.state.offsets import Offsets
from kappa.state.table import TableBirth
from kappa.tables.views.view_tables import build_tables

NEXMARK = Path(auction_site.source.file).parent
TOPICS = (PERSON, AUCTION, BID)
# The line of the table for query 4 by DBSP.
DBSP = "q4, dbsp"
# Events per second and core (docs/performance.md).
_TARGETS = {"q4": 50_000, "q5": 40_000, "q9": 40_000, "q20": 60_000}
_SECONDS = 1800.0
_ONE_QUERY = """
from kappa import pipeline
from pipelines import auction_site as site

KEPT = {kept!r}
READ = {read!r}


@pipeline(
    reads={{topic.name: topic for topic in site.auction_site.topics if topic.name in READ}},
    writes=[
        each for each in (*site.auction_site.tables, *site.auction_site.views) if each.name in KEPT
    ],
)
def bench({parameters}):
    return {returned}
"""
_RETURNED = "{name: rows for name, rows in site.auction_site.function(bid).items() if name in KEPT}"


@dataclass(frozen=True, slots=True)
class QueryReplay:
    """The replay of one query: events read, seconds, CPU seconds, rows, and bytes below the build.

    `stored` is None for a rival, which has no build. `warm` contains the events and seconds of the
    slices after the first large slice, or is None.
    """

    events: int
    wall: float
    cpu: float
    rows: int
    stored: int | None
    warm: Warm | None

    @property
    def per_core(self) -> float:
        """Returns the events per second of CPU, with all start-up."""
        return self.events / self.cpu


def main(home: Path, events: int) -> Report | None:
    """Replays each query once. A query whose rows differ from DuckDB's rows gets no figures.

    Returns None if no query has figures.
    """
    with local_pipeline(auction_site) as local:
        returned = local.outputs
    replays: dict[str, QueryReplay | str] = {}
    with ground(home) as here:
        ids, end = _ensure_log(here, events)
        wanted = _wanted(here, ids, end)
        whole = {birth.name: birth for birth in build_tables(auction_site, returned)}
        for query in ANSWERS:
            kept = needed(query, whole)
            replays[query] = _replay(here, query, kept, returned, ids, end, wanted[query])
            if query == "q4":
                replays[DBSP] = _replay_with_dbsp(here, end, wanted[query])
    found = {name: each for name, each in replays.items() if isinstance(each, QueryReplay)}
    wrong = {name: each for name, each in replays.items() if isinstance(each, str)}
    return report(found, wrong, events) if found else None


def needed(query: str, tables: Mapping[str, TableBirth]) -> frozenset[str]:
    """Returns the names of a query's table and of all tables and views that the query reads.

    `tables` maps each name to the table or maintained view of that name.
    """
    return frozenset({query}).union(*(needed(name, tables) for name in tables[query].reads))


def _ensure_log(here: Ground, events: int) -> tuple[Mapping[str, str], Offsets]:
    """Creates the topics with this many events, unless they are complete already.

    Returns the id of each topic by name, and the ends of the partitions.
    """
    note, log = here.home / "inputs" / "nexmark.json", here.log
    if note.exists():
        ids, end = _topics_now(log)
        noted = {"events": events, "ids": ids, "end": end.plain()}
        if json.loads(note.read_text(encoding="utf-8")) == noted:
            return ids, end
    say(f"making {events:,} events of Nexmark: once, for all runs of this size")
    made: dict[str, list[ProducedRecord]] = {topic: [] for topic in TOPICS}
    for each in auction_events(events):
        record = ProducedRecord(
            each.value,
            key=each.key,
            timestamp_ms=each.sent_ms,
            partition=int(each.key) % PARTITIONS[each.topic],
        )
        made[each.topic].append(record)
    declared = {topic.name: topic for topic in auction_site.topics}
    for topic, records in made.items():
        log.delete(topic)
        log.create(declared[topic])
        log.produce(records, topic)
    ids, end = _topics_now(log)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"events": events, "ids": ids, "end": end.plain()}))
    return ids, end


def _topics_now(log: Log) -> tuple[Mapping[str, str], Offsets]:
    """Returns the id of each existing topic by name, and the ends of their partitions."""
    ids = {topic: facts.id for topic in TOPICS if (facts := log.facts(topic)) is not None}
    return ids, log.end(ids)


def _wanted(here: Ground, ids: Mapping[str, str], end: Offsets) -> Mapping[str, Path]:
    """Returns a Parquet file with DuckDB's rows for each query, computed from the log's bytes."""
    folder = here.home / "inputs" / f"nexmark.{ids[BID]}"
    folder.mkdir(parents=True, exist_ok=True)
    for topic in TOPICS:
        if not (raw := folder / f"{topic}.parquet").exists():
            consume(here.log.bootstrap_servers, topic, end.only({topic}), raw)
    wanted = {query: folder / f"wanted-{query}.parquet" for query in ANSWERS}
    if all(file.exists() for file in wanted.values()):
        return wanted
    say("DuckDB computes the expected rows")
    records = " union all ".join(
        f"select '{topic}' as topic, partition as part, \"offset\" as place, logged, value "
        f"from '{folder / topic}.parquet'"
        for topic in TOPICS
    )
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"set memory_limit = '8GB'; set temp_directory = '{folder / 'spill'}'")
        connection.execute(f"create view log as {records}")
        load_events(connection)
        for query, file in wanted.items():
            written = file.with_suffix(".new")
            connection.execute(f"copy ({ANSWERS[query]}) to '{written}' (format parquet)")
            written.replace(file)
    return wanted


def _replay(
    here: Ground,
    query: str,
    kept: Collection[str],
    returned: Mapping[str, Mapping[str, Type]],
    ids: Mapping[str, str],
    end: Offsets,
    wanted: Path,
) -> QueryReplay | str:
    """Replays one query, with the tables `kept`.

    Returns the reason if the rows of the query are not the expected rows.
    """
    folder = here.home / "run" / f"nexmark-{query}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = code_of_query(kept)
    pipeline = declare(folder, code, "")
    tables = build_tables(
        pipeline, {table.name: returned[table.name] for table in pipeline.function_tables}
    )
    store = begin_build(folder, code, pipeline, tables, ids)
    read = Offsets.parse({topic.name: end.plain()[topic.name] for topic in pipeline.topics})
    for topic in pipeline.topics:
        warm_page_cache(topic_files(here.home, topic.name))
    command = fold_command(folder, here.log.bootstrap_servers, read)
    took = take_whole(command, folder, _SECONDS, f"the replay of {query}")
    wrong, count = _compare(query, f"({served_rows(folder, read)[query]})", wanted)
    if wrong is not None:
        say(f"no figure: the rows of {query} are not the oracle's: {wrong}")
        return wrong
    stored = sum(
        file.stat().st_size
        for file in store.path(folder_of_build(BUILD)).rglob("*")
        if file.is_file()
    )
    output = (folder / "output.log").read_text(errors="replace")
    events = sum(partition_end for _, _, partition_end in read.items())
    replay = QueryReplay(events, took.wall, took.cpu, count, stored, warm_in(output))
    say(f"{query}: {took.wall:.1f} s, {replay.per_core:,.0f} events/s of a core, equal")
    shutil.rmtree(folder)
    return replay


def _replay_with_dbsp(here: Ground, end: Offsets, wanted: Path) -> QueryReplay | str:
    """Replays q4 with feldera's DBSP, a Rust crate whose license is MIT or Apache 2.0.

    Returns the reason if DBSP cannot be built here, if the replay fails, or if the rows are not the
    expected rows.
    """
    folder = here.home / "run" / "nexmark-dbsp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out, read = folder / "q4.csv", end.only({AUCTION, BID})
    try:
        say("cargo builds DBSP, if it is not built yet: some fifteen minutes on two cores")
        begun = time.monotonic()
        program = ensure_cargo(here.home / "env" / "dbsp", SCRIPTS / "dbsp_q4")
        say(f"the build took {time.monotonic() - begun:.0f} s")
        for topic in (AUCTION, BID):
            warm_page_cache(topic_files(here.home, topic))
        ends = json.dumps(read.plain())
        command = Command([str(program), here.log.bootstrap_servers, ends, str(out)])
        took = take_whole(command, folder, _SECONDS, "the replay of q4 by DBSP")
    except (NotThereError, KappaError) as error:
        say(f"no figure: {error}")
        return str(error)
    wrong, count = _compare("q4", f"read_csv('{out}')", wanted)
    if wrong is not None:
        say(f"no figure: the rows of {DBSP} are not the oracle's: {wrong}")
        return wrong
    events = sum(partition_end for _, _, partition_end in read.items())
    replay = QueryReplay(events, took.wall, took.cpu, count, None, None)
    say(f"{DBSP}: {took.wall:.1f} s, {replay.per_core:,.0f} events/s of a core, equal")
    shutil.rmtree(folder)
    return replay


def _compare(query: str, rows: str, wanted: Path) -> tuple[str | None, int]:
    """Compares the rows of a query, a relation in SQL, with the expected rows.

    Returns a text with the difference, or None if the rows are equal, and the number of the
    expected rows.
    """
    with duckdb.connect(":memory:") as connection:
        renew_access(connection)
        connection.execute("set TimeZone = 'UTC'")
        wrong = difference(connection, query, rows, wanted)
        (count,) = connection.execute(f"select count(*) from '{wanted}'").fetchone() or (0,)
    return wrong, count


def code_of_query(kept: Collection[str]) -> Mapping[str, bytes]:
    """Returns the files of a project whose pipeline has only the tables and views `kept`."""
    returned = any(table.name in kept for table in auction_site.function_tables)
    latest = {
        table.latest.name
        for table in auction_site.tables
        if table.latest is not None and table.name in kept
    }
    one_query = _ONE_QUERY.format(
        kept=sorted(kept),
        read=sorted({*latest, *([BID] if returned else [])}),
        parameters=BID if returned else "",
        returned=_RETURNED if returned else "{}",
    )
    return {
        "pipelines/auction_site.py": (NEXMARK / "auction_site.py").read_bytes(),
        "pipelines/side_input.csv": (NEXMARK / "side_input.csv").read_bytes(),
        "pipelines/bench.py": one_query.encode(),
    }


def report(found: Mapping[str, QueryReplay], wrong: Mapping[str, str], events: int) -> Report:
    """Returns the report of the replays of a log with this many events.

    `found` maps a query to its replay, and `wrong` maps a query without figures to the reason.
    """
    rows = (
        (
            query,
            f"{each.events:,}",
            f"{each.rows:,}",
            f"{each.wall:.1f}",
            "" if each.warm is None else f"{each.warm.rate:,.0f}",
            f"{each.cpu / each.events * 1e6:.1f}",
            f"{each.per_core:,.0f}",
            f"{_TARGETS[query]:,}" if query in _TARGETS else "",
            "" if each.stored is None else f"{each.stored / each.events:.0f}",
        )
        for query, each in found.items()
    )
    head = (
        *("query", "events", "rows", "seconds", "events/s, warm", "CPU us/event"),
        *("events/s of a core", "target", "bytes stored/event"),
    )
    told = ", ".join(
        f"{query} {each.per_core:,.0f}" for query, each in found.items() if query in _TARGETS
    )
    note = f"One replay of each query, from a log of {events:,} events."
    reasons = "".join(f"\n{query} has no figures: {why}." for query, why in wrong.items())
    return Report(
        f"bench nexmark, {events:,} events: events/s of a core: {told}",
        found,
        f"{table(head, rows)}\n\n{note}{reasons}",
    )
