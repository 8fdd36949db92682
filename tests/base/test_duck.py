"""DuckDB computes the same in every connection, for few rows and for many."""

from __future__ import annotations

import threading

import pytest

from kappa.base.duck import (
    DuckError,
    TookTooLong,
    interrupted_after,
    new_cursor,
    open_connection,
    progress_of_queries,
    showing_progress,
    streamed_sql,
    whole_sql,
)
from kappa.state.files.duckdb_access import open_exact


@pytest.mark.parametrize("rows", [3, 5_000])
def test_an_as_of_join_means_the_same_over_few_rows_and_many(rows: int) -> None:
    with open_connection() as duck:
        duck.execute(f"create table events as select 1 as k, null::int as t from range({rows})")
        duck.execute("create table rates as from (values (1, 2), (1, 4)) as _(k, since)")

        found = duck.execute(
            "select distinct since from events e asof left join rates r"
            " on e.k = r.k and e.t >= r.since"
        ).fetchall()

        assert found == [(4,)]


def test_a_joins_filter_is_not_moved_below_a_limit() -> None:
    with open_exact() as duck:
        duck.execute("create table bids as from (values (1, 1), (1, 2), (2, 3), (3, 4)) as _(k, n)")
        duck.execute("create table wanted as select 3 as k")

        found = duck.execute(
            "select * from (select * from bids order by k, n limit 2) as b"
            " semi join wanted as w on b.k = w.k"
        ).fetchall()

    assert found == []


JOINED = "select k, b.k as j from range(3000000) as a(k) join range(3000000) as b(k) using (k)"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_rows_of_a_union_are_returned() -> None:
    """DuckDB 1.5 waits for ever for itself without `streamed_sql`."""
    union = f"{JOINED} union all {JOINED} -- all"
    with open_connection({"threads": 2}) as duck:
        rows = duck.execute(whole_sql(union)).to_arrow_reader(100_000)
        assert sum(batch.num_rows for batch in rows) == 6_000_000
        assert duck.execute(streamed_sql(duck, union)).fetchone() is not None
        assert len(duck.execute(streamed_sql(duck, union, 7)).fetchall()) == 7
        over = f"select * from (\n{union}\n) where k % 2 = 0"
        assert duck.execute(streamed_sql(duck, over)).fetchone() is not None


@pytest.mark.parametrize(
    "sql",
    [
        "from t",
        "from t join t as u using (k)",
        "from (from t union all from t) order by k",
        "from (from t union all from t) order by k limit 5",
        "select count(*) from (from t union all from t)",
        "select k, count(*) from (from t union all from t) group by k",
        "select 'union'",
    ],
)
def test_other_queries_are_streamed(sql: str) -> None:
    with open_connection() as duck:
        duck.execute("create table t as select range as k from range(1000)")
        assert streamed_sql(duck, sql) == sql


def test_another_thread_sees_how_far_a_query_is() -> None:
    """A job whose DuckDB works on a slice makes progress; after that, no progress is shown."""
    seen, done = set[tuple[float, ...]](), threading.Event()

    def look() -> None:
        while not done.wait(0.001):
            seen.add(progress_of_queries())

    watching = threading.Thread(target=look)
    with open_connection() as duck:
        duck.execute("create table t as select range as k, hash(range) as v from range(1000000)")
        with showing_progress(duck):
            watching.start()
            rows = duck.execute("select * from t order by v").to_arrow_reader(10_000)
            assert sum(batch.num_rows for batch in rows) == 1_000_000
            done.set()
            watching.join()

    assert len(seen) > 2
    assert progress_of_queries() == ()


def test_a_query_is_interrupted_after_its_time() -> None:
    """A query that ends in time is not interrupted, and neither is the connection later."""
    forever = "select sum(hash(a.r, b.r) % 7) from range(10000000) a(r), range(10000000) b(r)"
    with open_connection() as duck:
        with interrupted_after(duck, 60):
            assert duck.execute("select 1").fetchall() == [(1,)]
        with pytest.raises(TookTooLong), interrupted_after(duck, 0.1):
            duck.execute(forever)
        assert duck.execute("select 2").fetchall() == [(2,)]
        with pytest.raises(DuckError, match="wrong"), interrupted_after(duck, 60):
            duck.execute("select error('wrong')")


def test_a_cursor_computes_as_its_connection() -> None:
    """A cursor has the settings that decide values, and its own random seed."""
    with open_connection() as duck, new_cursor(duck) as cursor:
        for setting in ("TimeZone", "asof_loop_join_threshold"):
            asked = f"select current_setting('{setting}')"
            assert cursor.execute(asked).fetchall() == duck.execute(asked).fetchall()
        duck.execute("select setseed(0.25)")
        seeded = duck.execute("select random()").fetchall()
        duck.execute("select setseed(0.25)")
        assert cursor.execute("select random()").fetchall() != seeded
