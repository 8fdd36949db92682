"""Laws of queries: exactly the pinned files, typed and exact values, and no writing.

A user's mistake is answered with a sentence.
"""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace
from programs import run_python
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.duck import open_connection
from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.base.sql import quoted
from kappa.declare.values.arrow import arrow_schema
from kappa.serving.query.pin.catalog import pin_build, pin_served
from kappa.serving.query.pin.moments import AtGeneration, AtTime
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import (
    answer_query,
    ask_snapshot,
    connect_reader,
    read_snapshot,
    save_answer,
)
from kappa.serving.query.reader.reader import Reader, Rows, open_reader
from kappa.serving.query.reader.relations import Relations, put_relations, relations_of
from kappa.serving.query.reader.table_sql import type_text
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.tables import served_tables, tables_listing
from kappa.state.build import table_path
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.lease import live_leases
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH


@pytest.fixture
def store(tmp_path: Path) -> Store:
    # A root's name may contain what DuckDB, URLs and SQL give a meaning of their own.
    return Store(tmp_path / "röot 1* it's #1?")


def rejected_row(offset: int, reason: str | None = "no_json") -> dict[str, Any]:
    place = {"topic": "flights", "partition": 0, "offset": offset}
    headers = [{"key": "trace", "value": b"\xff"}]
    said = {"reason": reason, "detail": "it ends early", "headers": headers}
    return {**place, "timestamp": datetime(2013, 1, 1, tzinfo=UTC), "value": b"{", **said}


@pytest.fixture
def platform(store: Store) -> Platform:
    return Platform(store)


def test_the_past_is_answered_from_the_versions_that_were_shown_then(any_store: Store) -> None:
    store, platform = any_store, Platform(any_store)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    first = Frontiers(store, "flights-1").newest()
    assert first is not None
    put_kept_frontier(store, KeptFrontierRecord(first, (1,), stays=True))
    then = datetime.now(UTC)
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS.slice(0, 1))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS.slice(0, 2)})

    answers = [
        answer_query(store, "select count(*) from delays", when=when)
        for when in (AtTime(then), AtGeneration(1), AtGeneration(2), None)
    ]

    counts = [(found.generation, found.rows[0][0]) for found in answers]
    assert counts == [(1, 3), (1, 4), (2, 2), (2, 2)]
    assert answers[0].snapshot.frontiers == {"flights-1": first}


def test_a_query_sees_the_served_columns_of_the_pinned_version(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    found = platform.ask("select * from delays order by flights")

    assert found.columns == ("carrier", "flights")
    assert found.types == ("VARCHAR", "BIGINT")
    assert found.rows == (("UA", 3), ("ÅÄ", 4), (None, 5))
    assert (found.generation, found.snapshot.serving) == (1, {"flights": "flights-1"})
    assert found.offsets["flights-1"].at("flights", 0) == 12
    assert found.versions == {"flights-1": {"delays": 0, "rejects": 0}}


def test_what_is_committed_and_not_published_is_not_seen(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    write_deltalake(
        table_path(platform.store, "flights-1", "delays"), ROWS_OF_DELAYS, mode="append"
    )

    assert platform.ask("select count(*) from delays").rows == ((3,),)


def test_each_query_sees_the_newest_frontier(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

    assert platform.ask("select count(*) from delays").rows == ((6,),)


def test_several_queries_of_one_reading_see_one_frontier(any_store: Store) -> None:
    platform = Platform(any_store)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})

    def twice(reader):
        before = reader.rows("select count(*) from delays").rows
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
        again = reader.rows("select count(*) from delays")
        assert again.rows == before
        return again

    assert read_snapshot(platform.store, twice).rows == ((3,),)


def test_a_deleted_row_of_a_latest_table_is_not_seen(platform: Platform) -> None:
    platform.serve("flights", {PLANES: ROWS_OF_PLANES})
    found = platform.ask("from planes")

    assert (found.columns, found.rows) == (("tailnum", "seats"), (("N1", 100),))


NESTED = ("list", "array<struct<x:int,when:timestamp>>")
TIMED = (("at", "timestamp"), ("d", "date"), ("money", "decimal(38,2)"))


def test_an_empty_table_has_its_types(platform: Platform) -> None:
    platform.serve("flights", {TableBirth("nested", (*TIMED, NESTED)): None, PLANES: None})
    found = platform.ask("from nested")

    assert found.rows == ()
    assert found.types == (
        *("TIMESTAMP WITH TIME ZONE", "DATE", "DECIMAL(38,2)"),
        'STRUCT(x INTEGER, "when" TIMESTAMP WITH TIME ZONE)[]',
    )
    assert platform.ask("from planes").types == ("VARCHAR", "INTEGER")
    rejects = ("pipeline", *(name for name, _ in REJECTS_BIRTH.served))
    assert platform.ask("select * from rejects").columns == rejects


def test_values_come_back_exact_and_in_utc(platform: Platform) -> None:
    exact = TableBirth("exact", (*TIMED, ("raw", "binary"), ("x", "double"), NESTED))
    moment = datetime(2013, 1, 1, 5, 0, 0, 123456, tzinfo=UTC)
    money = Decimal("123456789012345678901234567890123456.78")
    row = (moment, date(2013, 1, 1), money, b"\xff", float("inf"), [{"x": 1, "when": moment}])
    rows = pa.table([[value] for value in row], schema=arrow_schema(exact.columns))
    platform.serve("flights", {exact: rows})

    assert platform.ask("from exact").rows == (row,)


def test_times_that_two_writers_spell_in_two_ways_are_one_column(
    platform: Platform, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    from kappa.tables.views.served_rows_sql import read_sql

    moment = datetime(2013, 1, 1, 5, 0, tzinfo=UTC)
    rows = pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "rust.parquet")
    pq.write_table(
        rows.cast(pa.schema([("at", pa.timestamp("us"))])),
        tmp_path / "spark.parquet",
        use_deprecated_int96_timestamps=True,
    )
    platform.serve("flights", {DELAYS: None})
    both = [str(tmp_path / "spark.parquet"), str(tmp_path / "rust.parquet")]
    for paths in (both, both[::-1]):
        found = platform.ask(read_sql(TableBirth("t", (("at", "timestamp"),)), paths, clock=None))
        assert (found.types, found.rows) == (("TIMESTAMP WITH TIME ZONE",), ((moment,), (moment,)))


def test_views_are_made_in_the_order_they_need(platform: Platform) -> None:
    views = {
        "a_top": "select max(flights) as most from b_named",
        "b_named": "select * from delays where carrier is not null;",
    }
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views=views)

    assert platform.ask("select most from a_top").rows == ((4,),)
    assert platform.ask("select count(*) from flights.b_named").rows == ((2,),)


@pytest.mark.slow
def test_a_broken_view_costs_its_own_queries(
    platform: Platform,
) -> None:
    views = {"top": "select carier from delays", "over": "from top", "fine": "from delays"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views=views)
    platform.serve("planes", {PLANES: ROWS_OF_PLANES})

    assert len(platform.ask("from delays").rows) == len(platform.ask("from flights.fine").rows) == 3
    assert len(platform.ask("with top as (from planes) from top").rows) == 1
    for sql in ("from top", "select * from flights.TOP", "from delays where carrier in (from top)"):
        with pytest.raises(
            UsageError, match=r'view top of pipeline flights cannot be read: .*"carier" not found'
        ) as refused:
            platform.ask(sql)
        assert "carrier" in refused.value.hint
    with pytest.raises(UsageError, match="view over of pipeline flights cannot be read"):
        platform.ask("from over")


@pytest.mark.slow
def test_lost_files_cost_their_tables_queries(platform: Platform, store: Store) -> None:
    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        views={"busy": "from delays"},
    )
    for path in Path(table_path(store, "flights-1", "delays")).glob("*.parquet"):
        path.unlink()

    assert len(platform.ask("from planes").rows) == 1
    assert platform.ask("select count(*) from rejects").rows == ((0,),)
    with pytest.raises(KappaError, match="table delays of pipeline flights cannot be read"):
        platform.ask("from delays")
    with pytest.raises(KappaError, match="view busy of pipeline flights cannot be read"):
        platform.ask("from busy")


def test_a_candidate_with_a_broken_view_cannot_be_looked_at(
    platform: Platform, store: Store
) -> None:
    """A candidate with a broken view cannot be read, because verification reads all of it."""
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views={"top": "select carier from delays"})

    with (
        pin_build(store, "flights-1", lease_seconds=60) as pinned,
        pytest.raises(UsageError, match="view top of pipeline flights cannot be read"),
    ):
        connect_reader(pinned.snapshot, store)


@pytest.mark.parametrize(
    "sql", ["select 1; drop view delays", "copy (select 1) to '/tmp/never'", "from itself"]
)
def test_a_view_is_one_query_over_what_there_is(platform: Platform, sql: str) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views={"itself": sql})
    with pytest.raises(UsageError, match="view itself of pipeline flights"):
        platform.ask("from itself")
    assert len(platform.ask("from delays").rows) == 3


def test_a_reader_finds_nothing_of_those_before_it_or_beside_it(
    platform: Platform, store: Store
) -> None:
    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        views={"busy": "select * from delays"},
    )
    everything = (
        "select schema_name, view_name from duckdb_views() where not internal "
        "union all select schema_name, '' from duckdb_schemas() where not internal"
    )

    with pin_build(store, "flights-1", lease_seconds=60) as pinned:
        for _ in range(2):
            with (
                connect_reader(pinned.snapshot, store) as reader,
                open_reader(None, served=False) as beside,
            ):
                assert reader.rows("select count(*) from busy").rows == ((3,),)
                assert beside.rows(everything).rows == ()
        with connect_reader(pinned.snapshot, store) as reader, pytest.raises(UsageError):
            reader.rows("select count(*) from nowhere")
    for _ in range(3):
        with open_reader(None, served=False) as after:
            assert after.rows(everything).rows == ()


def test_a_repeated_query_reuses_the_snapshots_views_unless_others_were_added(
    platform: Platform, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    made: list[int] = []

    def told(reader: Reader, found: Sequence[Relations], **how: bool) -> None:
        made.append(len(found))
        put_relations(reader, found, **how)

    monkeypatch.setattr("kappa.serving.query.query.put_relations", told)

    def flights(reader: Reader, _: object) -> Rows:
        return reader.rows("select sum(flights) from delays")

    assert [ask_snapshot(store, flights).rows for _ in range(3)] == [
        ask_snapshot(store, flights).rows
    ] * 3
    assert made == [1]
    ask_snapshot(store, lambda reader, _: reader.run_command("create view main.mine as select 1"))
    with pytest.raises(UsageError, match="mine"):
        ask_snapshot(store, lambda reader, _: reader.rows("from mine"))
    # A result that is half read stays open, so nobody gets that connection.
    ask_snapshot(store, lambda reader, _: next(reader.each_row("from range(5000)")))
    ask_snapshot(store, flights)
    assert made == [1, 1, 1, 1]
    platform.serve("planes", {PLANES: ROWS_OF_PLANES})
    assert platform.ask("select count(*) from planes").rows == ((1,),)
    assert made == [1, 1, 1, 1, 2]


def test_two_pipelines_have_a_schema_each_and_share_the_public_names(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    platform.serve(
        "main", {PLANES: ROWS_OF_PLANES}, views={"seats": "select sum(seats) as seats from planes"}
    )

    assert platform.ask("select count(*) from flights.delays, main.planes").rows == ((3,),)
    assert platform.ask("select count(*) from delays, planes, main_.rejects, rejects").rows == (
        (0,),
    )
    assert platform.ask("select seats from seats").rows == ((100,),)
    assert set(platform.ask("select 1").offsets) == {"flights-1", "main-2"}


def test_rejects_tell_their_pipeline(platform: Platform) -> None:
    rejected = [rejected_row(7), {**rejected_row(9, None), "_redrives": 7, "_deleted": True}]
    rows = pa.Table.from_pylist(rejected, arrow_schema(REJECTS_BIRTH.columns))
    platform.serve("flights", {DELAYS: None, REJECTS_BIRTH: rows})
    platform.serve("hits", {PLANES: None})

    assert platform.ask('select pipeline, "offset", value, headers from rejects').rows == (
        ("flights", 7, b"{", [{"key": "trace", "value": b"\xff"}]),
    )
    assert platform.ask("select reason from flights.rejects").rows == (("no_json",),)


def test_rejects_of_builds_without_headers_are_read_beside_others(platform: Platform) -> None:
    later = {"headers", "_redrives", "_deleted"}
    columns = tuple(column for column in REJECTS_BIRTH.columns if column[0] not in later)
    old = replace(REJECTS_BIRTH, columns=columns)
    rows = {
        birth: pa.Table.from_pylist([rejected_row(offset)], arrow_schema(birth.columns))
        for offset, birth in ((7, old), (8, REJECTS_BIRTH))
    }
    platform.serve("flights", {DELAYS: None, old: rows[old]})
    platform.serve("hits", {PLANES: None, REJECTS_BIRTH: rows[REJECTS_BIRTH]})

    sql = 'select pipeline, "offset", detail, headers is null from rejects order by 2'
    assert platform.ask(sql).rows == (
        ("flights", 7, "it ends early", True),
        ("hits", 8, "it ends early", False),
    )


def test_columns_of_one_name_are_told_apart(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: None})
    found = platform.ask("select 1 as a, 2 as a, 3 as a_1, 4 as a").columns
    assert found == ("a", "a_1", "a_1_1", "a_2")


BROKEN_TEXT = "select json_extract(t, '$') from (values (',{}')) as texts(t)"


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("select max(at) from delays", 'syntax error at or near ")"', 'write "at", or t.at'),
        ("select * from delay", "Table with name delay does not exist", 'did you mean "delays"'),
        ("select carier from delays", '"carier" not found', 'did you mean "carrier"?'),
        ("selec 1", 'syntax error at or near "selec"', "kappa tables"),
        ("select 'x'::int", "Could not convert string 'x'", "kappa tables"),
        ("select ?", "prepared parameter", "kappa tables"),
        ("", "the query is empty", "one query"),
        ("-- only a remark", "the query is empty", "one query"),
        ("select 1; select 2", "more than one statement", "one query"),
        ("insert into delays values (1)", "kind insert", "one query"),
        ("copy delays to '/tmp/x.csv'", "kind copy", "one query"),
        ("attach 'x.db'", "kind attach", "one query"),
        ("drop view delays", "kind drop", "one query"),
        ("set threads = 1", "kind set", "one query"),
        ("select '\udcff'", "not text in UTF-8", "one query"),
        *((BROKEN_TEXT.format("a" * odd + "é" * 300), "Malformed JSON", "") for odd in range(2)),
    ],
)
def test_a_slip_in_a_query_is_one_sentence_with_a_hint(
    platform: Platform, sql: str, message: str, hint: str
) -> None:
    platform.serve("flights", {DELAYS: None})
    with pytest.raises(UsageError) as told:
        platform.ask(sql)

    # Python 3.11.2 loses a message that is cut within a character.
    lost = message == "Malformed JSON" and "InvalidInputException" in told.value.message
    assert lost or message in told.value.message
    assert "\n" not in told.value.message + told.value.hint
    assert hint in told.value.hint


def test_where_nothing_serves_the_hint_says_so(platform: Platform) -> None:
    assert platform.ask("select 1").generation == 0
    with pytest.raises(UsageError) as told:
        platform.ask("from delays")
    assert "kappa deploy" in told.value.hint


@pytest.mark.slow
def test_a_retired_table_is_told_with_its_undo(
    platform: Platform,
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, {"busy": "from delays"})
    platform.serve("fleet", {PLANES: ROWS_OF_PLANES})
    platform.retire("flights")

    for sql in ("from delays", "select * from planes, flights.delays", "from busy"):
        with pytest.raises(UsageError) as told:
            platform.ask(sql)
        assert "is served no more: pipeline flights was retired at generation 3" in (
            told.value.message
        )
        assert "kappa undo flights brings it back until 20" in told.value.hint
    # All else goes on, and so does what the pipeline showed before.
    assert platform.ask("select count(*) from planes").generation == 3
    assert [each.name for each in served_tables(platform.store)] == ["planes", "rejects"]
    with pytest.raises(UsageError, match="nowhere does not exist"):
        platform.ask("from nowhere")


def test_who_has_a_retired_table_pinned_reads_on(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    with (
        pin_served(platform.store, lease_seconds=60) as pinned,
        connect_reader(pinned.snapshot, platform.store) as reader,
    ):
        platform.retire("flights")
        assert reader.rows("select count(*) from delays").rows == ((3,),)
        pinned.confirm_kept()
    with pin_served(platform.store, lease_seconds=60) as pinned:
        assert (pinned.snapshot.generation, dict(pinned.snapshot.serving)) == (2, {})


def test_a_name_of_a_retired_pipeline_that_is_served_again_is_read_as_any_other(
    platform: Platform,
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    platform.retire("flights")
    platform.serve("late", {DELAYS: None})

    assert platform.ask("select count(*) from delays").rows == ((0,),)


def test_tables_of_a_paused_pipeline_say_since_when(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    listing = tables_listing(served_tables(platform.store))
    assert "paused_since" in listing.wide
    record = Journal(platform.store).append(2, Paused("flights"))
    assert record is not None

    paused = tables_listing(served_tables(platform.store))

    assert "paused_since" not in paused.wide
    assert {row["paused_since"] for row in paused.row_objects()} == {record.at}


def test_a_file_that_is_gone_while_the_lease_holds_is_an_error(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    for file in Path(table_path(platform.store, "flights-1", "delays")).glob("*.parquet"):
        file.unlink()
    with pytest.raises(KappaError, match="could not be run"):
        platform.ask("from delays")


class StoodStill:
    """A question whose reader pauses for longer than its lease, the first `times` times.

    A collection runs during each pause.
    """

    def __init__(self, platform: Platform, times: int) -> None:
        self.platform = platform
        self.times = times
        self.asked: list[Rows] = []

    def __call__(self, reader: Reader, _snapshot: Snapshot) -> Rows:
        self.asked.append(reader.rows("select count(*) from delays"))
        if len(self.asked) <= self.times:
            self.platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
            assert live_leases(self.platform.store, math.inf) == ()
        return self.asked[-1]


def test_an_answer_whose_lease_ended_meanwhile_is_thrown_away_and_asked_for_again(
    platform: Platform,
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    question = StoodStill(platform, 2)

    found = ask_snapshot(platform.store, question)

    assert [rows.rows for rows in question.asked] == [((3,),), ((6,),), ((9,),)]
    assert found == question.asked[-1]


def test_a_reader_that_loses_its_lease_again_and_again_is_told_so(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    question = StoodStill(platform, 3)

    with pytest.raises(Conflict, match="the lease on what was being read has ended") as told:
        ask_snapshot(platform.store, question)

    assert len(question.asked) == 3
    assert "rollout.lease_seconds" in told.value.hint


def test_a_file_that_was_collected_when_the_lease_had_ended_is_no_error(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    asked: list[Reader] = []

    def collected(reader: Reader, _snapshot: Snapshot) -> Rows:
        asked.append(reader)
        if len(asked) == 1:
            live_leases(platform.store, math.inf)
            raise KappaError("the query could not be run: no such file")
        return reader.rows("select count(*) from delays")

    assert ask_snapshot(platform.store, collected).rows == ((3,),)


def test_an_interrupt_ends_a_long_query_as_it_ends_anything_else(store: Store) -> None:
    def interrupted(reader: Reader) -> None:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        reader.rows("select count(*) from (select distinct hash(range) from range(40000000))")

    with connect_reader(Snapshot(0, {}, {}, {}), store) as reader, pytest.raises(KeyboardInterrupt):
        interrupted(reader)


def test_a_candidate_is_read_by_itself(platform: Platform) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    with (
        pin_build(platform.store, "flights-1", lease_seconds=60) as pinned,
        connect_reader(pinned.snapshot, platform.store) as reader,
    ):
        assert reader.rows(
            "select count(*), count(*) filter (where (flights > 3) is not true) from delays"
        ).rows == ((3, 1),)


def test_nothing_served_makes_an_empty_reader(store: Store) -> None:
    with connect_reader(Snapshot(0, {}, {}, {}), store) as reader:
        assert reader.rows("show tables").rows == ()


@pytest.mark.slow
def test_a_query_imports_nothing_heavy(platform: Platform, tmp_path: Path) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    (tmp_path / "kappa.toml").write_text('[kafka]\nheap = "512m"\n')
    code = (
        "import sys; from kappa.commands.app import run_command; print(run_command(sys.argv[1:]))\n"
        "print([name for name in ('pyspark', 'py4j', 'pandas', 'confluent_kafka', 'pydantic', "
        "'pydantic_core') if name in sys.modules])"
    )
    typed = (
        *("--project", str(tmp_path), "--root", str(platform.store.folder)),
        *("query", "-o", "csv", "select count(*) as n from delays, planes"),
    )
    acks = '{"acks": "all"}'
    found = run_python("-c", code, *typed, check=True, KAPPA__KAFKA__OPTIONS=acks)
    assert found.stdout.splitlines() == ["n", "3", "0", "[]"]


def test_served_tables_tell_rows_columns_and_where_they_lie(platform: Platform) -> None:
    from kappa.serving.query.tables import served_tables

    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        views={"top": "select max(flights) as most from delays"},
    )
    delays, planes, rejects, top = served_tables(platform.store)

    assert (delays.name, delays.build, delays.rows, delays.version) == ("delays", "flights-1", 3, 0)
    assert delays.columns == (("carrier", "VARCHAR"), ("flights", "BIGINT"))
    assert delays.path == table_path(platform.store, "flights-1", "delays")
    assert (planes.rows, rejects.rows) == (1, 0)
    assert (top.rows, top.columns, top.version, top.path) == (1, (("most", "BIGINT"),), None, None)


def test_names_of_columns_and_of_fields_keep_their_case(platform: Platform, tmp_path: Path) -> None:
    """Readers see an event's `dateTime` with its case, although engines ignore case in names."""
    import pyarrow.parquet as pq

    from kappa.serving.query.query import save_answer
    from kappa.serving.query.render import Form, Listing, render_listing
    from kappa.serving.query.tables import KnownTables, served_tables, tables_listing

    bids = TableBirth(
        "bids",
        (("Bid", "struct<dateTime:bigint,List:array<struct<itemNo:int>>,int:decimal(9,2)>"),),
    )
    bid = {"dateTime": 1, "List": [{"itemNo": 2}], "int": Decimal("1.50")}
    view = {"times": 'select Bid."dateTime" as "BidTime", Bid as "again" from bids'}
    platform.serve("web", {bids: pa.table([[bid]], schema=arrow_schema(bids.columns))}, views=view)

    found = platform.ask("from bids")
    assert (found.columns, found.rows) == (("Bid",), ((bid,),))
    assert platform.ask("from times").columns == ("BidTime", "again")
    save_answer(platform.store, "from bids", tmp_path / "bids.parquet")
    assert pq.read_table(tmp_path / "bids.parquet").to_pylist() == [{"Bid": bid}]
    line = '{"Bid": {"dateTime": 1, "List": [{"itemNo": 2}], "int": "1.50"}}\n'
    assert render_listing(Form.JSONL, Listing(found.columns, found.rows)) == line
    assert KnownTables().served_tables(platform.store) == served_tables(platform.store)
    listed = tables_listing(served_tables(platform.store), columns_as_text=True).row_objects()
    fields = 'struct(dateTime bigint, List struct(itemNo integer)[], "int" decimal(9,2))'
    assert [each["columns"] for each in listed if each["table"] != "rejects"] == [
        f"Bid {fields}",
        f"BidTime bigint, again {fields}",
    ]


def test_known_tables_are_those_that_are_served_now(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what has changed is opened again; a relation that cannot be read is tried each time."""
    from kappa.serving.query.tables import KnownTables, broken_relations, served_tables

    known, opened = KnownTables(), list[str]()

    def ensure_equal() -> None:
        assert known.served_tables(platform.store) == served_tables(platform.store)
        assert known.broken_relations(platform.store) == broken_relations(platform.store)

    bad = {"bad": "select nothing from delays", "top": "select max(flights) as most from delays"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views=bad)
    platform.serve("web", {PLANES: ROWS_OF_PLANES})
    ensure_equal()
    ensure_equal()
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS.slice(0, 1)}, views={"top": bad["top"]})
    ensure_equal()
    frontiers = Frontiers(platform.store, "web-2")
    last = frontiers.newest()
    assert last is not None
    frontiers.publish(replace(last, number=last.number + 1))

    def told(snapshot: Snapshot, store: Store) -> tuple[Relations, ...]:
        opened.extend(snapshot.serving)
        return relations_of(snapshot, store)

    monkeypatch.setattr("kappa.serving.query.query.relations_of", told)
    for _ in range(2):
        known.served_tables(platform.store)
    assert opened == ["web"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("TIMESTAMP WITH TIME ZONE", "timestamp with time zone"),
        ("DECIMAL(38,2)[]", "decimal(38,2)[]"),
        ("MAP(VARCHAR, STRUCT(ID BIGINT))", "map(varchar, struct(ID bigint))"),
        ('STRUCT("A ""(," DATE, B MAP(DATE, TIME))', 'struct("A ""(," date, B map(date, time))'),
        ("UNION(Num INTEGER, Str VARCHAR)", "union(Num integer, Str varchar)"),
        ("ENUM('A, B', 'C')", "enum('A, B', 'C')"),
    ],
)
def test_only_types_are_written_in_small_letters(kind: str, text: str) -> None:
    assert type_text(kind) == text


def test_a_broken_view_is_listed_with_its_reason_beside_all_else(platform: Platform) -> None:
    from kappa.serving.query.tables import broken_relations, served_tables, tables_listing

    views = {"top": "select carier from delays", "bad": "select carrier::int as n from delays"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views=views)
    found = {each.name: each for each in served_tables(platform.store)}

    assert [each.name for each in broken_relations(platform.store)] == ["top"]
    assert (found["delays"].rows, found["delays"].broken) == (3, "")
    assert (found["top"].rows, found["top"].columns) == (None, ())
    assert '"carier" not found' in found["top"].broken
    listed = tables_listing(found.values(), columns_as_text=True).row_objects()
    assert "BROKEN: the query cannot be run" in str(listed)


def test_the_files_of_a_table_are_read_by_its_where_and_columns(platform: Platform) -> None:
    """Compares `kappa query` with a reader that uses the paths of `kappa tables -o json`."""
    from kappa.serving.query.tables import served_tables, tables_listing

    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    for each in tables_listing(served_tables(platform.store)).row_objects():
        names = ", ".join(quoted(column["name"]) for column in each["columns"])
        files = DeltaTable(each["path"], version=each["version"]).to_pyarrow_dataset()
        connection = open_connection()
        connection.register("files", files)
        read = connection.execute(f"select {names} from files where {each['where'] or 'true'}")

        answered = platform.ask(f"select {names} from flights.{each['table']}")
        assert sorted(map(str, read.fetchall())) == sorted(map(str, answered.rows))


def test_the_tables_that_a_query_names_are_found_whatever_there_is() -> None:
    sql = (
        "with t as (select * from deep) select name, 'text' "
        "from delays left join airlines using (carrier), t where x in (select x from other)"
    )
    assert tables_named(sql) >= {"delays", "airlines", "deep", "other"}
    assert tables_named("select 'from nothing'") == tables_named("no query") == frozenset()


SAVED = "select carrier, flights, 1.5::decimal(9, 2) as carrier from delays order by flights -- all"


def test_each_form_has_the_rows_of_the_query(platform: Platform, tmp_path: Path) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    files = {form: tmp_path / f"it's.{form}" for form in ("parquet", "csv", "jsonl", "PARQUET")}
    for file in files.values():
        saved = save_answer(platform.store, SAVED, file)
        assert (saved.rows, saved.snapshot.generation) == (3, 1)

    assert pq.read_table(files["parquet"]).to_pydict() == {
        "carrier": ["UA", "ÅÄ", None],
        "flights": [3, 4, 5],
        "carrier_1": [1.5, 1.5, 1.5],
    }
    assert files["PARQUET"].read_bytes()[:4] == b"PAR1"
    with files["csv"].open(encoding="utf-8", newline="") as lines:
        assert list(csv.reader(lines))[:2] == [
            ["carrier", "flights", "carrier_1"],
            ["UA", "3", "1.50"],
        ]
    read = [json.loads(line) for line in files["jsonl"].read_text(encoding="utf-8").splitlines()]
    assert read[2] == {"carrier": None, "flights": 5, "carrier_1": "1.50"}


def test_many_rows_are_all_written_and_nobody_else_meets_what_is_half_read(
    platform: Platform, tmp_path: Path
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    file = tmp_path / "many.jsonl"

    assert save_answer(platform.store, "from range(10000)", file).rows == 10_000
    assert len(file.read_text(encoding="utf-8").splitlines()) == 10_000
    assert platform.ask("select count(*) from delays").rows == ((3,),)


@pytest.mark.parametrize(
    ("sql", "name", "says"),
    [
        ("from delays", "answer.xlsx", "no extension that names a form"),
        ("from delays", "nowhere/answer.csv", "cannot be written"),
        ("from delays", "nowhere/answer.parquet", "cannot be written"),
        ("from delay", "answer.parquet", "delay does not exist"),
        ("drop view delays", "answer.csv", "a statement of the kind drop"),
        ("select 1; select 2", "answer.jsonl", "more than one statement"),
        ("select 1) to '/tmp/x.csv'; --", "answer.parquet", "syntax error"),
        ("select error('stop') from range(9)", "answer.jsonl", "stop"),
    ],
)
def test_what_cannot_be_saved_leaves_what_was_there(
    platform: Platform, tmp_path: Path, sql: str, name: str, says: str
) -> None:
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    before = tmp_path / name
    if before.parent.is_dir():
        before.write_text("before", encoding="utf-8")

    with pytest.raises(UsageError, match=says):
        save_answer(platform.store, sql, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if path != platform.store.folder] == (
        [name] if before.parent.is_dir() else []
    )
    assert not before.exists() or before.read_text(encoding="utf-8") == "before"
