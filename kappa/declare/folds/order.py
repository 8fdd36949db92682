"""The order of the log (law 4): its columns, and the only definition of "later". Pure."""

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
    """Returns an SQL condition that the place `one` comes after the place `other` in the order.

    Each place is given by the SQL of its parts.
    """
    after = f"{one[0]} > {other[0]}"
    return (
        after
        if len(one) == 1
        else f"{after} or ({one[0]} = {other[0]} and ({later_condition(one[1:], other[1:])}))"
    )


def order_column(column: str, of: str) -> str:
    """Returns the hidden column that contains a part of the order of a picked value.

    `of` is the part: log time, topic, partition or offset.
    """
    return f"_{column}{of}"
