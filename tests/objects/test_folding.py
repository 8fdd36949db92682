"""A job folds small slices into a root in a bucket, and a query there equals plain Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from between import Between
from object_store import BUCKET, ObjectStore

from kappa import Table, Topic, count, pipeline, set_, sum_
from kappa.base.errors import Broken, KappaError
from kappa.engine.write.maintenance import Maintenance
from kappa.journal.events import Served
from kappa.journal.journal import Journal
from kappa.journal.receipt import Receipt
from kappa.state.build import put_birth, table_path
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.versions import files
from serving.query.query import answer
from serving.reader import opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

VISITS = Topic("visits", event="page string, seconds bigint, who string", partitions=2)
PAGES = Topic(
    "pages", kind="compacted", event="page string not null, title string", partitions=2, key="page"
)


@pipeline(
    reads={"visits": VISITS, "pages": PAGES},
    writes=[
        Table("totals", keys=("page",), fold={"visits": count(), "seconds": sum_("seconds")}),
        # Its rows of touched keys are read at the version of the slice before.
        Table("visitors", keys=("page",), fold={"who": set_("who")}),
        Table("all"),
        Table("pages", latest=PAGES),
    ],
)
def site(visits: DataFrame) -> dict[str, DataFrame]:
    return {"totals": visits, "visitors": visits, "all": visits.select("page", "seconds")}


TOTALS = "select page, visits, seconds from totals order by all"
VISITORS = "select page, array_to_string(list_sort(who), ',') from visitors order by all"
ALL = 'select page, seconds from "all" order by all'
NEWEST = "select page, title from pages order by all"
REJECTS = "select count(*) from rejects"


@pytest.fixture(scope="module")
def local(spark: SparkSession) -> Iterator[LocalPipeline]:
    from kappa.engine.children.rehearsal import local_pipeline

    with local_pipeline(site) as made:
        yield made


@pytest.fixture
def store(object_store: ObjectStore, between: Between, tmp_path: Path) -> Store:
    # Connections of earlier tests know no bucket.
    opened._idle.clear()
    return Store(object_store.new_root(), storage=between.storage, local=tmp_path / "local")


@pytest.fixture
def built(store: Store, local: LocalPipeline) -> Iterator[Rehearsal]:
    """A build whose log is random and that has folded nothing."""
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal

    made = Rehearsal(store, local, random_log(MemoryLog(), 300), driver_rows=1_000_000)
    put_birth(store, made.birth)
    yield made
    made.close()


def random_log(log: MemoryLog, records: int) -> MemoryLog:
    draw = random.Random(31)
    for number in range(records):
        page, partition = draw.choice(["a", "b", "ü"]), draw.randrange(2)
        match draw.randrange(10):
            case 0:
                log.add("visits", partition, b"{")
            case 1 | 2:
                value = {"page": page, "title": f"title {number}"}
                content = None if draw.random() < 0.3 else json.dumps(value).encode()
                log.add("pages", hash_of(page), content, key=page.encode(), ms=number)
            case _:
                seconds = draw.choice([None, 0, number, -(2**40)])
                value = {"page": page, "seconds": seconds, "who": draw.choice("xyz")}
                log.add("visits", partition, json.dumps(value).encode(), ms=number)
    return log


def hash_of(page: str) -> int:
    return ord(page) % 2


def ends_of(log: MemoryLog, slices: int) -> list[Offsets]:
    """Returns the ends of so many slices, the last of which is the log's."""
    draw, end, found = random.Random(7), log.end, []
    at = {(topic, partition): 0 for topic, partition, _ in end.items()}
    for left in range(slices, 0, -1):
        for topic, partition, last in end.items():
            step = (last - at[topic, partition]) * draw.random() * 2 / left
            at[topic, partition] = (
                last if left == 1 else min(last, at[topic, partition] + int(step))
            )
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in at.items():
            ends.setdefault(topic, {})[partition] = offset
        found.append(Offsets(ends))
    return found


def expected(log: MemoryLog) -> dict[str, list[tuple[Any, ...]]]:
    """Computes what queries answer from the log, one record after the other."""
    totals: dict[str, list[Any]] = defaultdict(lambda: [0, None])
    visitors: dict[str, set[str]] = defaultdict(set)
    every, pages, rejects = [], {}, 0
    for topic, _, _, _, key, value, _ in sorted(log.records, key=lambda each: each[:3]):
        if topic == "pages":
            # A page is in one partition: its newest record is the last one there.
            pages[key.decode()] = None if value is None else json.loads(value)["title"]
            continue
        try:
            row = json.loads(value)
        except ValueError:
            rejects += 1
            continue
        found, seconds = totals[row["page"]], row["seconds"]
        found[0] += 1
        found[1] = seconds if found[1] is None else found[1] + (seconds or 0)
        visitors[row["page"]].add(row["who"])
        every.append((row["page"], seconds))
    return {
        TOTALS: sorted((page, *each) for page, each in totals.items()),
        VISITORS: sorted((page, ",".join(sorted(who))) for page, who in visitors.items()),
        ALL: sorted(every, key=lambda each: (each[0], each[1] is None, each[1])),
        NEWEST: sorted((page, title) for page, title in pages.items() if title is not None),
        REJECTS: [(rejects,)],
    }


def served(built: Rehearsal) -> Callable[[str], list[tuple[Any, ...]]]:
    """Serves a build, and returns a function that asks."""
    receipt = Receipt(site.name, "b", "v", Offsets(), None, None, first=True)
    assert Journal(built.store).append(1, Served(1, 1, {site.name: "b"}, receipt))
    return lambda sql: list(answer(built.store, sql).rows)


def test_what_is_folded_in_a_bucket_is_what_the_log_says(built):
    draw = random.Random(3)
    for end in ends_of(built._log, 8):
        if draw.random() < 0.4:
            built.die_before_the_frontier_of(end)
            built.begin(driver_rows=1_000_000)
        built.fold(end)

    ask = served(built)

    wanted = expected(built._log)
    assert {sql: ask(sql) for sql in wanted} == wanted


@pytest.mark.parametrize("part", [".parquet", ".json", "/frontier/00000000000000000003.json"])
def test_wherever_an_answer_is_lost_it_is_folded_once(built, between, part):
    first, end = ends_of(built._log, 2)
    built.fold(first)
    try:
        with between.losing("PUT", part):
            built.fold(end)
    except Broken:
        raise
    except KappaError:
        # A commit that finds its own version taken: the job is started again, and takes it back.
        built.close()
        built.begin(driver_rows=1_000_000)
        built.fold(end)

    ask = served(built)

    wanted = expected(built._log)
    assert {sql: ask(sql) for sql in wanted} == wanted


def test_after_upkeep_the_files_in_the_bucket_are_the_files_referenced(built):
    for end in ends_of(built._log, 12):
        built.fold(end)
    store, birth = built.store, built.birth

    Maintenance(
        store, birth, built.slices.writers, built.publisher, seconds=0.0, keep_seconds=0.0
    ).run()

    newest = built.publisher.newest
    referenced = {
        each.removeprefix(f"{store.url}/")
        for table in birth.tables
        for each in files(table_path(store, "b", table.name), newest.versions[table.name])
    }
    there = {name for name in store.names("builds/b/tables") if "/_delta_log/" not in name}
    assert there == referenced
    ask = served(built)
    wanted = expected(built._log)
    assert {sql: ask(sql) for sql in wanted} == wanted


def test_a_small_slice_costs_a_few_requests_for_each_table(built, between):
    *ends, last = ends_of(built._log, 4)
    for end in ends:
        built.fold(end)

    with between.counting() as requests:
        built.fold(last)

    tables = len(built.birth.tables)
    assert len(requests) <= 20 * tables, requests
    assert sum(f"/{BUCKET}/" in each and each.startswith("PUT") for each in requests) >= tables


def test_a_query_costs_requests_by_its_files_and_never_by_the_journal(built, between):
    for end in ends_of(built._log, 3):
        built.fold(end)
    ask = served(built)
    ask(TOTALS)

    with between.counting() as requests:
        ask(TOTALS)

    assert len(requests) <= 40, requests
