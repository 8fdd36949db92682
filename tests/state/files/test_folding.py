"""A job folds small slices into a root in a bucket, and a query there equals plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from bucket_site import TOTALS, ends_of, expected, random_log, site
from object_store import BUCKET
from served import serve_build

from kappa.base.errors import Broken, KappaError
from kappa.engine.write.maintenance import Maintenance
from kappa.serving.query.query import answer_query
from kappa.state.build import put_birth, table_path
from kappa.state.store import Store
from kappa.tables.versions import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.children.rehearsal import LocalPipeline, Rehearsal

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted", "new_connections")]


@pytest.fixture(scope="module")
def local(spark: SparkSession) -> Iterator[LocalPipeline]:
    from kappa.engine.children.rehearsal import local_pipeline

    with local_pipeline(site) as made:
        yield made


@pytest.fixture
def built(store: Store, local: LocalPipeline) -> Iterator[Rehearsal]:
    """Yields a build with a random log that has folded nothing yet."""
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal

    made = Rehearsal(store, local, random_log(MemoryLog(), 300), driver_rows=1_000_000)
    put_birth(store, made.birth)
    yield made
    made.close()


def served(built: Rehearsal) -> Callable[[str], list[tuple[Any, ...]]]:
    """Makes a build serve, and returns a function that queries it."""
    serve_build(built.store, site.name, "b")
    return lambda sql: list(answer_query(built.store, sql).rows)


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
        for each in files(table_path(store, "b", table.name), newest.versions[table.name], None)
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
    # Some are for mended records, whose originals are looked for among the rejects.
    assert len(requests) <= 20 * tables, requests
    assert sum(f"/{BUCKET}/" in each and each.startswith("PUT") for each in requests) >= tables


def test_a_query_costs_requests_by_its_files_and_never_by_the_journal(built, between):
    for end in ends_of(built._log, 3):
        built.fold(end)
    ask = served(built)
    ask(TOTALS)

    with between.counting() as requests:
        ask(TOTALS)

    assert len(requests) <= 10, requests
