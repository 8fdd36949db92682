"""Expected rows from given events, and the law of views (kappa/testing.py)."""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from house import HOUSE
from programs import run_program, run_python
from rehearsing import pass_on

from kappa import Pipeline, Table, Topic, View, avg_, count, max_, ordered, pipeline, set_, sum_
from kappa.base.errors import Broken, DeclarationError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

SALES = Topic(
    "sales",
    key="shop",
    partitions=3,
    event="shop int not null, price decimal(10,2), at timestamp, tags array<string>",
)
SHOPS = Topic("shops", kind="compacted", key="id", event="id int not null, city string")


@pipeline(
    reads={"sales": SALES, "shops": SHOPS},
    writes=[
        Table(
            "totals",
            keys=("shop",),
            fold={
                "n": count(),
                "price": sum_("price"),
                "mean": avg_("price"),
                "all": set_("price"),
            },
        ),
        Table("sales"),
        Table("shops", latest=SHOPS),
        View("where_sold", "select city, n from named where n > 1"),
        View(
            "named",
            "select s.id, s.city, n from shops s join totals t on t.shop = s.id",
            keys=("id",),
        ),
        View("by_city", "select city, sum(n)::bigint as n from named group by city", by=("city",)),
    ],
)
def sold(sales: DataFrame) -> dict[str, DataFrame]:
    return {"totals": sales, "sales": sales.select("shop", "at", "tags", "_key", "_partition")
            .withColumnsRenamed({"_key": "key", "_partition": "partition"})}  # fmt: skip


TABLES = ("totals", "sales", "shops", "named", "by_city", "rejects", "where_sold")


def test_each_table_and_view_has_the_rows_that_readers_see(spark: SparkSession) -> None:
    from kappa.testing import Event, tables_of

    tables = tables_of(
        sold,
        {
            "sales": [
                {"shop": 2, "price": 1, "at": "2024-01-31T12:00:00Z", "tags": ["ä", None]},
                {"shop": 1, "price": 2.5},
                Event({"shop": 2, "price": 4}, key="2", partition=1),
                Event(b"{", key=b"2"),
            ],
            "shops": [
                {"id": 1, "city": "Rom"},
                {"id": 2, "city": "Ulm"},
                {"id": 3, "city": "Bad"},
                Event(None, key="3"),
            ],
        },
    )

    assert [*tables] == [*TABLES]
    assert tables["totals"] == [
        {"shop": 1, "n": 1, "price": Decimal("2.50"), "price_overflow": False, "mean": 2.5,
         "all": [Decimal("2.50")], "all_overflow": False},
        {"shop": 2, "n": 2, "price": Decimal("5.00"), "price_overflow": False, "mean": 2.5,
         "all": [Decimal("1.00"), Decimal("4.00")], "all_overflow": False},
    ]  # fmt: skip
    noon = dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)
    assert tables["sales"] == [
        {"shop": 1, "at": None, "tags": None, "key": "1", "partition": 1},
        {"shop": 2, "at": noon, "tags": ["ä", None], "key": "2", "partition": 2},
        {"shop": 2, "at": None, "tags": None, "key": "2", "partition": 1},
    ]
    assert tables["shops"] == [{"id": 1, "city": "Rom"}, {"id": 2, "city": "Ulm"}]
    assert tables["named"] == [{"id": 1, "city": "Rom", "n": 1}, {"id": 2, "city": "Ulm", "n": 2}]
    assert tables["by_city"] == [{"city": "Rom", "n": 1}, {"city": "Ulm", "n": 2}]
    assert tables["where_sold"] == [{"city": "Ulm", "n": 2}]
    (reject,) = tables["rejects"]
    assert (reject["topic"], reject["reason"]) == ("sales", "malformed_json")


def test_without_events_tables_are_empty(spark: SparkSession) -> None:
    from kappa.testing import tables_of

    assert tables_of(sold, {}) == {name: [] for name in TABLES}


def counting(view: View) -> Pipeline:
    return pass_on(SALES, Table("totals", keys=("shop",), fold={"n": count()}), view)


LOTS = "select shop, n, random() as lot from totals where n > 1"
drawn = counting(View("lots", LOTS, keys=("shop",)))


@pipeline(reads={"sales": SALES}, writes=[Table("t")], on_error="stop")
def failing(sales: DataFrame) -> dict[str, DataFrame]:
    return {"t": sales.selectExpr("100 div (shop - 7) as n")}


def test_a_mistake_is_told(spark: SparkSession) -> None:
    from kappa.testing import law_of_slices, law_of_views, tables_of

    with pytest.raises(UsageError, match="pipeline sold reads no topic sale"):
        tables_of(sold, {"sale": []})
    with pytest.raises(UsageError, match="topic sales is given 'shop', which is not an event"):
        tables_of(sold, {"sales": {"shop": 1}})  # type: ignore[arg-type]
    for check in (tables_of, law_of_slices, law_of_views):
        with pytest.raises(UsageError, match="a test is given 'shop', which is not a pipeline"):
            check("shop", {})  # type: ignore[operator]
    with pytest.raises(UsageError, match="sold is given a list, which is not a mapping of events"):
        tables_of(sold, [{"shop": 1}])  # type: ignore[arg-type]
    odd = counting(View("odd", "select no from totals"))
    with pytest.raises(DeclarationError, match=r"\.py:\d+: view odd cannot be read"):
        tables_of(odd, {"sales": [{"shop": 1}]})
    with pytest.raises(Broken, match="sales partition 1 offset 0"):
        tables_of(failing, {"sales": [{"shop": 7}]})


def test_the_law_of_views_holds_for_queries_of_their_tables(spark: SparkSession) -> None:
    from kappa.testing import law_of_views, some_events

    law_of_views(sold, some_events(sold, 12), cuts=2)


ORDERS = Topic("orders", key="id", partitions=2, event="id string not null, shop int not null")
bought = pass_on(ORDERS, Table("orders"), View("ids", "select id, shop from orders", keys=("id",)))


def test_random_events_have_ids_of_their_own_where_a_view_needs_them(spark: SparkSession) -> None:
    from kappa.testing import law_of_views, some_events

    with pytest.raises(Broken, match=r"view ids: several rows have the keys id='") as broken:
        law_of_views(bought, some_events(bought, 20), cuts=0)
    assert 'distinct=("orders.id",)' in broken.value.hint
    # Frames: this one, and the hidden one of the check.
    assert (len(broken.traceback), broken.value.__suppress_context__) == (2, True)

    law_of_views(bought, some_events(bought, 20, distinct=("orders.id",)), cuts=0)
    for wrong in ("id", "orders.no", "order.id"):
        with pytest.raises(UsageError, match=f"distinct names {wrong}, which is neither text"):
            some_events(bought, 1, distinct=(wrong,))


def test_a_view_that_is_not_its_query_breaks_the_law_at_the_smallest_cut(
    spark: SparkSession,
) -> None:
    from kappa.testing import LawBroken, law_of_slices, law_of_views

    events = {"sales": [{"shop": shop} for shop in (1, 2, 1, 3)]}
    # As a deploy tries it: equal rows of all slicings say nothing of a query that is wrong in all.
    with pytest.raises(LawBroken, match="breaks the law of views: after slices that end at"):
        law_of_slices(drawn, events, cuts=0)
    with pytest.raises(LawBroken, match="view lots stores {'shop': 1, 'n': 2, 'lot': 0") as broken:
        law_of_views(drawn, events, cuts=1)

    assert "which its query does not have; view lots lacks {'shop': 1" in broken.value.message
    assert len(broken.value.ends) == 1


@pipeline(
    reads={"sales": SALES},
    writes=[
        Table("by_shop", keys=("shop",), fold={"n": count()}),
        # DuckDB's sum is a hugeint, and the column that is stored is a decimal.
        View("totals", "select shop, sum(n) as n from by_shop group by shop", keys=("shop",)),
        View("kinds", "select shop, typeof(n) as kind from totals", keys=("shop",)),
    ],
)
def typed(sales: DataFrame) -> dict[str, DataFrame]:
    return {"by_shop": sales.select("shop")}


def test_a_view_over_a_view_reads_served_types(spark: SparkSession) -> None:
    from kappa.testing import law_of_views, tables_of

    events = {"sales": [{"shop": 1}, {"shop": 1}]}

    assert tables_of(typed, events)["kinds"] == [{"shop": 1, "kind": "DECIMAL(38,0)"}]
    law_of_views(typed, events, cuts=1)


def test_the_law_of_views_needs_a_view_and_events(spark: SparkSession) -> None:
    from kappa.testing import law_of_views

    with pytest.raises(UsageError, match="pipeline failing has no maintained view"):
        law_of_views(failing, {})
    with pytest.raises(UsageError, match="held to the law of views on no events"):
        law_of_views(drawn, {})


# A day later, and in Berlin an hour after midnight: Python has no such time.
LAST = "9999-12-31T23:59:59Z"


@pipeline(
    reads={"sales": SALES},
    writes=[
        Table("days", keys=("day",), fold={"n": count(), "last": max_("later")}),
        View("there", "select day, n, timezone('Europe/Berlin', last)::date as there from days"),
        View("kept", "select day, n, last, last + interval 1 year as more from days where n > 0",
             keys=("day",)),
    ],
)  # fmt: skip
def far(sales: DataFrame) -> dict[str, DataFrame]:
    return {"days": sales.selectExpr("cast(at + interval 2 hours as date) as day",
                                     "at + interval 1 day as later")}  # fmt: skip


def test_times_that_python_lacks_are_carried(spark: SparkSession) -> None:
    from kappa.testing import law_of_slices, law_of_views, tables_of

    events = {"sales": [{"shop": 1, "at": at} for at in (LAST, "2024-01-31T12:00:00Z", LAST)]}
    tables = tables_of(far, events)

    assert tables["days"] == [
        {"day": dt.date(2024, 1, 31), "n": 1, "last": dt.datetime(2024, 2, 1, 12, tzinfo=dt.UTC)},
        {"day": "10000-01-01", "n": 2, "last": "10000-01-01T23:59:59Z"},
    ]
    assert tables["there"][1] == {"day": "10000-01-01", "n": 2, "there": "10000-01-02"}
    assert tables["kept"][1]["more"] == "10001-01-01T23:59:59Z"
    law_of_slices(far, events, cuts=1)
    law_of_views(far, events, cuts=1)


def remember(state: dict[str, Any], row: dict[str, Any]) -> None:
    state["last"] = row["later"]


@pipeline(
    reads={"sales": SALES},
    writes=[Table("lasts", keys=("shop",), fold=ordered(remember, state="last timestamp"))],
    on_error="reject",
)
def stepped(sales: DataFrame) -> dict[str, DataFrame]:
    return {"lasts": sales.selectExpr("shop", "at + interval 1 day as later", "_topic",
                                      "_partition", "_offset")}  # fmt: skip


def test_a_record_with_a_time_that_no_step_can_take_is_a_reject(spark: SparkSession) -> None:
    from kappa.testing import tables_of

    tables = tables_of(
        stepped, {"sales": [{"shop": 1, "at": "2024-01-31T12:00:00Z"}, {"shop": 1, "at": LAST}]}
    )

    noon = dt.datetime(2024, 2, 1, 12, tzinfo=dt.UTC)
    assert tables["lasts"] == [{"shop": 1, "last": noon}]
    ((reason, detail),) = ((row["reason"], row["detail"]) for row in tables["rejects"])
    assert reason == "function_failed"
    assert "later of table lasts is +10000-01-01 23:59:59" in detail


TESTS = """
import pytest
from pyspark.sql import SparkSession

from kappa import Table, Topic, count, pipeline
from kappa.testing import tables_of

pytestmark = pytest.mark.usefixtures("warm_spark")
VISITS = Topic("visits", event="page string")
seen = set()

@pipeline(
    reads={"visits": VISITS}, writes=[Table("hits", keys=("page",), fold={"n": count()})]
)
def web(visits):
    return {"hits": visits}

@pytest.mark.parametrize("number", [1, 2])
def test_hits(number):
    seen.add(SparkSession.getActiveSession().sparkContext.startTime)
    assert tables_of(web, {"visits": [{"page": "/"}] * number})["hits"] == [
        {"page": "/", "n": number}
    ]
    assert len(seen) == 1
"""


def run_pytest(*arguments: str, folder: Path) -> str:
    """Runs pytest in a project, in a new process; returns its output."""
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, folder=folder)
    return done.stdout + done.stderr


@pytest.mark.long
def test_the_fixture_keeps_one_spark_for_all_tests_of_a_run(tmp_path: Path) -> None:
    """The fixture comes with the installed Kappa, and needs no import."""
    (tmp_path / "test_hits.py").write_text(TESTS, encoding="utf-8")

    assert "2 passed" in run_pytest(str(tmp_path), folder=tmp_path)


@pytest.mark.parametrize("asks_by", ["warm_spark", "tables_of"])
def test_a_session_has_the_jars_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_by: str
) -> None:
    """If the cache of `[jars]` cannot be made, that is an error before a JVM starts."""
    (tmp_path / "cache").touch()
    (tmp_path / "kappa.toml").write_text('[jars]\ncache = "cache/jars"\n', encoding="utf-8")
    # Without the fixture, each call begins a session.
    tests = TESTS if asks_by == "warm_spark" else re.sub(r"pytestmark.*\n|.*seen.*\n", "", TESTS)
    (tmp_path / "test_hits.py").write_text(tests, encoding="utf-8")
    for name in [each for each in os.environ if each.startswith("KAPPA__")]:
        monkeypatch.delenv(name)

    said = run_pytest(".", folder=tmp_path)

    assert f"the jar cache {tmp_path / 'cache' / 'jars'} cannot be written" in said


def test_tests_import_the_pipelines_of_their_project(tmp_path: Path) -> None:
    for folder in ("pipelines", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines" / "web.py").write_text("HITS = 7\n", encoding="utf-8")
    (tmp_path / "tests" / "test_hits.py").write_text(
        "from pipelines.web import HITS\n\ndef test_hits():\n    assert HITS == 7\n",
        encoding="utf-8",
    )
    # The program alone: `python -m` would add the folder to the path.
    pytest_alone = Path(sys.executable).parent / "pytest"

    for given in ((), ("tests/test_hits.py",)):
        done = run_program(pytest_alone, "-q", "-p", "no:cacheprovider", *given, folder=tmp_path)

        assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_waits_for_no_import_of_spark_where_no_test_asks() -> None:
    code = (
        "import sys, kappa.pytest_plugin; "
        "print([name for name in ('pyspark', 'duckdb', 'pyarrow') if name in sys.modules])"
    )

    assert run_python("-c", code, folder=HOUSE, check=True).stdout.strip() == "[]"
