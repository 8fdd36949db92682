"""Facts about the values of a table's columns, from the log's statistics of files."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# A number that can be added to whole numbers and decimals.
_UNKNOWN = Number("Infinity")


def greatest(facts: pa.Table, column: str) -> Any:
    """Returns the greatest absolute value in a column of numbers.

    The facts describe the table's files. Returns infinity if a file has no statistics for the
    column.
    """

    def of_files(what: str) -> list[Any]:
        return (
            facts.column(f"{what}.{column}").to_pylist()
            if f"{what}.{column}" in facts.column_names
            else [None] * facts.num_rows
        )

    every = zip(
        facts.column("num_records").to_pylist(),
        of_files("null_count"),
        of_files("min"),
        of_files("max"),
        strict=True,
    )
    return max(
        (
            0 if rows == nulls else _UNKNOWN if least is None or most is None else max(-least, most)
            for rows, nulls, least, most in every
        ),
        default=0,
    )
