"""Laws of tables, views, maintenance and queries: the same on a disk and in a bucket."""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from between import Answer, Between
from changing import RECENT, SOURCES, TOTALS, FoldedBuild, some_rows
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform, serve_build

from kappa import View
from kappa.base.errors import Broken, Damaged, KappaError, SettingsError
from kappa.base.sql import quoted
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.affected_rows import touched_rows
from kappa.engine.views.view_maintenance import MaintainedViews
from kappa.serving.query.query import answer_query
from kappa.serving.query.reader import reader as reader_module
from kappa.state.build import table_path
from kappa.state.files.address import arrow_source
from kappa.state.files.bucket import LOOKING, with_patience
from kappa.state.files.duckdb_access import open_exact
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import Guard, create, open_version
from kappa.tables.durable_versions import take_back
from kappa.tables.merge import merge_for
from kappa.tables.parquet import parquet_sql
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.stored_table import StoredTable, ensure_table, open_table
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import files, mark_of
from kappa.tables.views.view_tables import view_births

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("new_connections")]

MARK = Mark("b", "t", 1, 1, Offsets(), Offsets())
BIRTH = TableBirth("t", (("k", "string"), ("n", "bigint")), keys=("k",), fold={"n": ("sum", "n")})


def made(store: Store) -> StoredTable:
    return ensure_table(table_path(store, "b", "t"), BIRTH.columns, MARK)


def append(table: StoredTable, number: int) -> None:
    rows = pa.table({"k": [f"k{number}"], "n": [number]})
    table.append(rows, MARK, Guard("a", number))


def rows_at(path: str, version: int) -> list[tuple[object, ...]]:
    with reader_module.open_reader(None, served=True) as reader:
        return sorted(reader.rows(parquet_sql(BIRTH.columns, files(path, version, None))).rows)


def test_a_table_that_is_taken_back_grows_on_from_there(any_store):
    table = made(any_store)
    assert mark_of(table.path, 0) == MARK
    for number in range(1, 7):
        append(table, number)

    assert take_back(table.path, 4) == 2

    again = open_table(table.path)
    assert again.version == 4
    contributed = pa.table({"k": ["k1", "new"], "n": [10, 20]})
    again.merge(contributed, merge_for(BIRTH, quoted), MARK, Guard("a", 7))
    wanted = [("k1", 11), ("k2", 2), ("k3", 3), ("k4", 4), ("new", 20)]
    assert rows_at(table.path, again.version) == wanted
    again.compact(MARK, target_bytes=1 << 20)
    assert rows_at(table.path, again.version) == wanted


def test_of_two_writers_of_one_version_one_wins(any_store):
    table = made(any_store)
    other = open_table(table.path)
    append(table, 1)

    with pytest.raises(KappaError, match="could not be appended"):
        append(other, 2)

    assert rows_at(table.path, 1) == [("k1", 1)]


def test_what_no_version_needs_is_deleted_and_a_pinned_one_is_read(any_store):
    table = made(any_store)
    for number in range(1, 6):
        append(table, number)
    pinned = table.version
    table.compact(MARK, target_bytes=1 << 20)
    append(table, 6)
    for version in (pinned, table.version):
        ensure_checkpoint(any_store, table.path, version, None)
        ensure_checkpoint(any_store, table.path, version, None)

    assert delete_unneeded(any_store, table.path, table.version, [pinned], vouched=None) == 0
    assert rows_at(table.path, pinned) == [(f"k{number}", number) for number in range(1, 6)]
    assert delete_unneeded(any_store, table.path, table.version, [], vouched=None) == 5

    assert rows_at(table.path, table.version) == [(f"k{n}", n) for n in range(1, 7)]
    with pytest.raises(Damaged, match="cannot be opened"):
        open_version(table.path, 2)
    there = any_store.names("builds/b/tables/t")
    assert {any_store.address(name) for name in there if name.endswith(".snappy.parquet")} <= {
        *files(table.path, table.version, None)
    }


def test_a_commit_whose_answer_is_lost_is_there_once(store, between):
    table = made(store)
    append(table, 1)
    for part in (".parquet", ".json"):
        before = table.version
        try:
            with between.losing("PUT", part):
                append(table, 2)
        except KappaError:
            # Its own version is taken: the job that follows takes it back and folds again.
            take_back(table.path, before)
            table = open_table(table.path)
            append(table, 2)
        assert rows_at(table.path, table.version) == [("k1", 1), ("k2", 2)]
        take_back(table.path, before)
        table = open_table(table.path)


def test_a_slice_without_rows_is_one_request_and_one_commit_if_its_answer_is_lost(store, between):
    table = made(store)
    append(table, 1)

    with between.counting() as requests:
        table.commit_nothing(MARK, Guard("a", 2))
    assert [each.partition(" ")[0] for each in requests] == ["PUT"], requests
    with between.losing("PUT", ".json"):
        table.commit_nothing(MARK, Guard("a", 3))

    append(table, 4)
    assert table.version == open_table(table.path).version == 4
    assert rows_at(table.path, 4) == [("k1", 1), ("k4", 4)]


def test_the_columns_of_a_row_group_are_one_request(store, between):
    columns = [("k", "string"), *((f"n{number}", "bigint") for number in range(6))]
    table = ensure_table(table_path(store, "b", "t"), columns, MARK)
    wide = {f"n{number}": [*range(number, 50_000 + number)] for number in range(6)}
    table.append(pa.table({"k": [f"k{n}" for n in range(50_000)], **wide}), MARK, Guard("a", 1))

    with between.counting() as requests:
        found = touched_rows(table.path, table.version, columns, pa.table({"k": ["k7"]}))

    assert found.num_rows == 1
    # Its size, its footer, the keys, and the other columns.
    assert len([each for each in requests if ".snappy" in each or ".zstd" in each]) == 4, requests


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_a_key_in_the_environment_is_named(object_store, tmp_path, monkeypatch, missing):
    root, storage = object_store.new_root(), object_store.storage
    Store(root, storage=storage, local=tmp_path)
    monkeypatch.delenv(missing)

    with pytest.raises(KappaError, match=f"{missing} is not in the environment"):
        open_exact()
    with pytest.raises(SettingsError, match=f"{missing} is not in the environment"):
        Store(f"{root}/another", storage=storage, local=tmp_path)


def test_a_table_whose_server_does_not_let_its_client_in_is_not_damaged(store, between):
    """The job continues once the credentials are valid again, so no new build is needed."""
    path = table_path(store, "b", "t")
    between.denied = "ExpiredToken"
    with pytest.raises(KappaError, match="table .* could not be made") as unmade:
        create(path, pa.table({"n": [1]}), MARK, f"table {path} could not be made")
    with pytest.raises(KappaError, match="cannot be opened") as unopened:
        open_table(path)
    between.denied = ""
    table = made(store)
    between.denied = "ExpiredToken"
    with pytest.raises(KappaError) as uncommitted:
        append(table, 1)
    between.denied = ""

    for each in (unmade, unopened, uncommitted):
        assert not isinstance(each.value, Broken), each.value
        assert "credentials" in each.value.hint, each.value
    append(made(store), 1)


def test_a_commit_that_is_answered_too_late_is_there_once(store, between):
    """The job is told that its commit failed; the next job reverts it and commits again."""
    late: list[str] = []

    def answered_late(request: str, answer: Answer) -> Answer:
        if request.startswith("PUT ") and "/_delta_log/" in request and not late:
            late.append(request)
            time.sleep(LOOKING.answer + 2)  # The server has it, and its answer comes too late.
        return answer

    with with_patience(LOOKING):
        table = made(store)
        between.changing = answered_late
        with pytest.raises(KappaError, match="could not be appended"):
            append(table, 1)

    assert len(late) == 1
    found = open_table(table.path)
    assert (found.version, rows_at(table.path, found.version)) == (1, [("k1", 1)])
    assert take_back(table.path, 0) == 1
    append(made(store), 1)
    assert rows_at(table.path, 1) == [("k1", 1)]


def test_a_variable_that_the_client_of_buckets_does_not_take_is_told(
    object_store, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "maybe")

    with pytest.raises(SettingsError, match='of the environment is wrong: .* "maybe"'):
        Store(object_store.new_root(), storage=object_store.storage, local=tmp_path)


def test_a_query_reads_what_is_served(any_store):
    platform = Platform(any_store)
    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        {"busy": "select carrier from delays where flights > 3"},
    )

    answers = [
        platform.ask(f"select * from {name} order by all").rows
        for name in ("delays", "planes", "busy", "rejects")
    ]

    assert answers[:3] == [
        (("UA", 3), ("ÅÄ", 4), (None, 5)),
        (("N1", 100),),
        (("ÅÄ",), (None,)),
    ]
    assert answers[3] == ()


def stored(built: FoldedBuild) -> list[str]:
    writer = built.writers["recent"]
    found = (
        pq.ParquetFile(arrow_source(each)).read()
        for each in files(writer.path, writer.version, None)
    )
    return sorted(key for each in found for key in each.column("k").to_pylist())


def test_rows_that_are_gone_leave_the_files(any_store):
    rows = [{"k": f"k{place}", "at": 1_000_000 * place} for place in range(20)]
    table = pa.Table.from_pylist(rows, arrow_schema(RECENT.columns))
    with closing(FoldedBuild(any_store, "b", (RECENT, REJECTS_BIRTH), lambda: 1_000.0)) as built:
        built.fold({"recent": table}, log_time=19_000)
        assert len(stored(built)) == 20

        built.keep_up()

    # A row is gone ten seconds later.
    assert stored(built) == sorted(row["k"] for row in rows[9:])


def test_upkeep_between_slices_costs_a_few_requests_however_many_slices_were_before(store, between):
    with closing(FoldedBuild(store, "b", (TOTALS, REJECTS_BIRTH), lambda: 1_000.0)) as built:
        costs = [upkeep_after(slices, store, built, between) for slices in (1, 10, 60)]

    # The first has no floor and no joined sums before it, which the others delete.
    _, (few, few_between), (many, many_between) = costs
    # Its commits are read, beside slices.
    assert few < many
    # One more frontier is kept.
    assert many_between == few_between + 1 <= 32, costs


def upkeep_after(
    slices: int, store: Store, built: FoldedBuild, between: Between
) -> tuple[int, int]:
    """Returns the numbers of maintenance's requests in parallel with slices and between slices."""
    row = pa.Table.from_pylist([{"k": "k", "rows": 1}], arrow_schema(TOTALS.columns))
    for _ in range(slices):
        built.fold({"totals": row}, 1_000)
    put_kept_frontier(store, KeptFrontierRecord(built.publisher.newest))
    with between.counting() as beside:
        built.maintenance.prepare()
    built.fold({}, 1_000)
    with between.counting() as at_once:
        built.keep_up()
    return len(beside), len(at_once)


QUERIES = {
    "by_change": "select city, count(*) as n from newest group by city",
    "by_keys": "select e.k, e.n, t.rows from events e join totals t using (k)",
    "whole": "select k, rank() over (order by rows, k) as place from totals",
}
VIEWS = view_births(
    (
        View("by_change", QUERIES["by_change"], keys=["city"]),
        View("by_keys", QUERIES["by_keys"], by=["k"]),
        View("whole", QUERIES["whole"], keys=["k"]),
    ),
    SOURCES,
)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns the names of the views that were computed only for what a slice touched."""
    found = set[str]()
    compute = MaintainedViews._of_slice

    def noted(views: MaintainedViews, writer: Any, *rest: Any) -> Any:
        rows = compute(views, writer, *rest)
        found.update(() if rows is None else (writer.birth.name,))
        return rows

    monkeypatch.setattr(MaintainedViews, "_of_slice", noted)
    return found


def test_a_view_is_its_query_by_each_way(any_store: Store, apart: set[str]) -> None:
    draw, seen = random.Random(5), 0
    tables = (*SOURCES, *VIEWS, REJECTS_BIRTH)
    with closing(FoldedBuild(any_store, "b", tables, lambda: 1_000.0)) as built:
        serve_build(any_store, "p", "b")
        for place in range(5):
            built.fold(some_rows(draw, place, built.writers), log_time=1_000 * place)

            for name, query in QUERIES.items():
                rows = answer_query(any_store, f"from {name} order by all").rows
                assert rows == answer_query(any_store, f"from ({query}) order by all").rows, name
                seen += len(rows)

    assert seen
    assert apart == {"by_change", "by_keys"}
