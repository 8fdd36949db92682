"""Samples draw each row as often as its weight demands, and the same rows for any slices."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kappa import sample
from kappa.base.errors import DeclarationError
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.values.columns import Scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS, ROWS = 4_000, 8
TYPES = {
    **{name: Scalar(kind) for name, kind in FOLD_ORDER_COLUMNS},
    "row": Scalar("bigint"),
    "weight": Scalar("double"),
    "text": Scalar("string"),
}


@pytest.mark.jvm
@pytest.mark.parametrize("weight", [None, "weight"])
def test_rows_are_drawn_by_their_weight(spark: SparkSession, weight: str | None) -> None:
    """In 4,000 groups, each row is drawn as often as its chance, within five deviations."""
    given = {name: str(kind) for name, kind in TYPES.items()}
    spark.sql(
        f"select id div {ROWS} as g, id % {ROWS} as row, cast(id % {ROWS} - 1 as double) as weight,"
        " 0L as _log_time, 'visits' as _topic, 0 as _partition, id as _offset"
        f" from range({GROUPS * ROWS})"
    ).createOrReplaceTempView("drawn_from")
    fold = sample("row", 1, weight=weight)
    stored = dict(fold.stored_columns("drawn", ReturnedColumns("table t", TYPES)))
    contributed = ", ".join(fold.contribution_sql("drawn", stored, given))
    counted = spark.sql(
        f"select _drawn_top[0].value as row, count(*) as n from (select g, {contributed} "
        "from drawn_from group by g) group by all"
    ).collect()
    found = {each.row: each.n for each in counted}
    weights = {row: 1.0 if weight is None else max(row - 1.0, 0.0) for row in range(ROWS)}
    for row, each in weights.items():
        chance = each / sum(weights.values())
        deviation = (GROUPS * chance * (1 - chance)) ** 0.5
        assert abs(found.get(row, 0) - GROUPS * chance) <= 5 * deviation, row


@pytest.mark.jvm
@pytest.mark.parametrize(
    "value",
    ["cast(1 / (1 - rand(7)) as bigint)", "cast(200 * rand(7) as bigint)"],
    ids=["zipf", "uniform"],
)
def test_a_sample_tells_how_often_values_come(spark: SparkSession, value: str) -> None:
    """In a sample of 10,000 rows, each value's share is that in the log, within five deviations."""
    k, rows = 10_000, 300_000
    spark.sql(
        f"select {value} as row, 0L as _log_time, 'visits' as _topic, 0 as _partition,"
        f" id as _offset from range(0, {rows}, 1, 1)"
    ).createOrReplaceTempView("told_from")
    fold = sample("row", k)
    stored = dict(fold.stored_columns("drawn", ReturnedColumns("table t", TYPES)))
    given = {name: str(kind) for name, kind in TYPES.items()}
    contributed = ", ".join(fold.contribution_sql("drawn", stored, given))
    drawn = spark.sql(f"select {contributed} from told_from").first()
    assert drawn is not None
    sampled = Counter(each.value for each in drawn["_drawn_top"])
    counted = spark.sql("select row, count(*) as n from told_from group by row").collect()

    assert sum(sampled.values()) == k
    for each in counted:
        share = each.n / rows
        deviation = (share * (1 - share) / k) ** 0.5
        assert abs(sampled[each.row] / k - share) <= 5 * deviation + 1 / k, each.row
    assert max(each.n for each in counted) > rows / 250


@pytest.mark.parametrize(
    ("columns", "k", "weight", "why"),
    [
        ([], 3, None, r"sample has columns=\[\]"),
        (["row", 3], 3, None, "give the name of a column, or a list of names"),
        ("row", 0, None, "sample has k=0"),
        ("row", 1_000_000, None, "a whole number from 1 to 10000"),
        ("rows", 3, None, "did you mean"),
        ("row", 3, "text", "by a weight of the type string"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    columns: list[str] | str, k: int, weight: str | None, why: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        list(sample(columns, k, weight=weight).stored_columns("drawn", ReturnedColumns("t", TYPES)))
    assert re.search(why, f"{refused.value} {refused.value.hint}")
