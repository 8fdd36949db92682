"""The order of the log (law 4): its columns, and the only SQL that compares two places. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# Names and Spark's types: the broker's clock first, then the place that orders the records of one
# millisecond.
ORDER_COLUMNS = (("_log_time", "bigint"), ("_partition", "int"), ("_offset", "bigint"))
# A function may unite rows of several topics: only the topic's name distinguishes two records of
# one millisecond, partition and offset.
FOLD_ORDER_COLUMNS = (
    ("_log_time", "bigint"),
    ("_topic", "string"),
    ("_partition", "int"),
    ("_offset", "bigint"),
)


def later_condition(one: Sequence[str], other: Sequence[str]) -> str:
    """Returns the SQL condition that the place `one` comes after the place `other` in the log.

    A place is a sequence of SQL expressions for the columns of the order, the most significant
    first.
    """
    after = f"{one[0]} > {other[0]}"
    return (
        after
        if len(one) == 1
        else f"{after} or ({one[0]} = {other[0]} and ({later_condition(one[1:], other[1:])}))"
    )


def order_column(column: str, of: str) -> str:
    """Returns the hidden column that stores one part of a value's place in the log.

    `of` is the column of the log's order for that part: `_log_time`, `_topic`, `_partition` or
    `_offset`. `column` is the column of the value.
    """
    return f"_{column}{of}"
