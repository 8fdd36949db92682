"""The plan of small slices is made once, gives each slice its own rows, and repeats none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kappa import Pipeline, Table, Topic, count, pipeline
from kappa.base.errors import Broken
from kappa.declare.pipeline import ORIGIN_COLUMNS
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_columns
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.function.contribution import Prepared

pytestmark = pytest.mark.jvm

EVENTS = Topic("events", event="k string, n int")


def declared(function: Callable[[DataFrame], dict[str, DataFrame]]) -> Pipeline:
    made = pipeline(
        reads={"events": EVENTS},
        writes=[Table("totals", keys=("k",), fold={"rows": count()}), Table("all")],
    )(function)
    assert isinstance(made, Pipeline)
    return made


def prepared(spark: SparkSession, made: Pipeline, folder: Path) -> Prepared:
    from kappa.engine.function.contribution import Function, Prepared

    columns = {column.name: column.type for column in parse_columns("k string, n int")}
    births = {
        table.name: table for table in table_births(made, {"totals": columns, "all": columns})
    }
    return Prepared(spark, made, Function(made, births), births, str(folder))


def rows(*events: tuple[str | None, int | None]) -> dict[str, pa.Table]:
    plain = [{"k": k, "n": n} for k, n in events]
    return {
        "events": pa.Table.from_pylist(
            plain, schema=arrow_schema([("k", "string"), ("n", "int"), *ORIGIN_COLUMNS])
        )
    }


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_each_run_sees_the_rows_that_are_put_then(spark: SparkSession, tmp_path: Path) -> None:
    def function(events: DataFrame) -> dict[str, DataFrame]:
        return {
            "totals": events.where("n > 0").union(events.where("n = 1")).select("k", "n"),
            "all": events.select("k", "n"),
        }

    plan = prepared(spark, declared(function), tmp_path)

    first = plan.run(rows(("a", 1), ("a", 2), (None, 3), ("b", 0)))
    assert plain(first["totals"]) == [("a", 3), (None, 1)]
    assert plain(first["all"]) == [("a", 1), ("a", 2), ("b", 0), (None, 3)]
    second = plan.run(rows(("c", 5)))
    assert (plain(second["totals"]), plain(second["all"])) == ([("c", 1)], [("c", 5)])
    assert plain(plan.run({})["all"]) == []


def test_what_gives_another_value_each_time_gives_another_for_each_slice(
    spark: SparkSession, tmp_path: Path
) -> None:
    def function(events: DataFrame) -> dict[str, DataFrame]:
        from pyspark.sql import functions as F

        return {
            "totals": events.select("k", "n"),
            "all": events.select(
                F.uuid().alias("k"),
                F.date_diff(F.current_date(), F.to_date(F.lit("1970-01-01"))).alias("n"),
            ),
        }

    plan = prepared(spark, declared(function), tmp_path)

    first, second = (plan.run(rows(("a", 1)))["all"].to_pylist() for _ in range(2))
    assert first[0]["k"] != second[0]["k"]


def test_a_slice_much_larger_than_those_before_is_read_whole_and_so_are_later_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    def function(events: DataFrame) -> dict[str, DataFrame]:
        return {"totals": events.select("k", "n"), "all": events.select("k", "n")}

    plan = prepared(spark, declared(function), tmp_path)
    long = "x" * 3_000_000

    assert plain(plan.run(rows(("a", 1)))["all"]) == [("a", 1)]
    assert plain(plan.run(rows((long, 2), ("b", 3)))["all"]) == [("b", 3), (long, 2)]
    assert plain(plan.run(rows(("c", 4)))["all"]) == [("c", 4)]
    assert plain(plan.run(rows(*((str(n), n) for n in range(20_000))))["totals"]) == sorted(
        ((str(n), 1) for n in range(20_000)), key=repr
    )


@pytest.mark.parametrize("keeps", [lambda frame: frame.cache(), lambda frame: frame.repartition(2)])
def test_a_function_that_keeps_rows_between_runs_is_refused(
    spark: SparkSession, tmp_path: Path, keeps: Callable[[DataFrame], DataFrame]
) -> None:
    def function(events: DataFrame) -> dict[str, DataFrame]:
        kept = keeps(events.select("k", "n"))
        return {"totals": kept, "all": kept}

    with pytest.raises(Broken, match="keeps or moves rows between runs"):
        prepared(spark, declared(function), tmp_path)


def test_an_error_on_a_row_names_the_users_line(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from kappa.engine.function.spark_errors import SPARK_ERRORS, translated

    inverse = F.udf(lambda n: 1 // n, "int")

    def by_udf(events: DataFrame) -> dict[str, DataFrame]:
        made = events.select("k", inverse("n").alias("n"))
        return {"totals": made, "all": made}

    def by_cast(events: DataFrame) -> dict[str, DataFrame]:
        made = events.select("k", F.col("k").cast("int").alias("n"))
        return {"totals": made, "all": made}

    for function, said in (
        (by_udf, r"test_prepared\.py:\d+: pipeline by_udf raised ZeroDivisionError"),
        (
            by_cast,
            r"test_prepared\.py:\d+: pipeline by_cast failed on a row: \[CAST_INVALID_INPUT\]",
        ),
    ):
        made = declared(function)
        with pytest.raises(SPARK_ERRORS) as raised:
            prepared(spark, made, tmp_path).run(rows(("x", 0)))
        assert isinstance(translated(raised.value, made), Broken)
        with pytest.raises(Broken, match=said):
            raise translated(raised.value, made)


def test_a_function_that_returns_other_columns_than_at_birth_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    def function(events: DataFrame) -> dict[str, DataFrame]:
        return {"totals": events, "all": events.selectExpr("k", "cast(n as bigint) as n")}

    with pytest.raises(
        Broken,
        match="returns k string, n bigint for table all, which was born with k string, n int",
    ):
        prepared(spark, declared(function), tmp_path)
