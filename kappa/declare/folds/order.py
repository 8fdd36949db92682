"""The order of the records in the log: its columns, and SQL that compares two positions. Pure.

Records are ordered by log time, and then by topic, partition and offset. No other module compares
positions in SQL.
"""

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
    """Returns the SQL condition that one record comes after another record in the log.

    `one` and `other` are SQL expressions for the positions of the two records: the log time, topic,
    partition and offset, in this order (the topic may be left out).
    """
    after = f"{one[0]} > {other[0]}"
    return (
        after
        if len(one) == 1
        else f"{after} or ({one[0]} = {other[0]} and ({later_condition(one[1:], other[1:])}))"
    )


def order_column(column: str, of: str) -> str:
    """Returns the name of a hidden column with a part of a stored value's position in the log.

    `column` is the name of the value's column. `of` names the part: `_log_time`, `_topic`,
    `_partition` or `_offset`.
    """
    return f"_{column}{of}"
