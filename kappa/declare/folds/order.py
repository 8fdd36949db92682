"""The order of the log (law 4): its columns, and the one definition of "later". Pure."""

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
    """Returns the condition that one place in the order is after another, in any SQL."""
    after = f"{one[0]} > {other[0]}"
    return (
        after
        if len(one) == 1
        else f"{after} or ({one[0]} = {other[0]} and ({later_condition(one[1:], other[1:])}))"
    )


def order_column(column: str, of: str) -> str:
    """Returns the hidden column of a picked value's log time, topic, partition or offset."""
    return f"_{column}{of}"
