"""Sums near the limits of their types, for tests: contributions, and what readers see.

Contributions are made in plain Python. They equal the aggregates that Spark computes from a slice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from kappa import Table, Topic, avg_, pipeline, sum_
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_columns
from kappa.state.table import TableBirth
from kappa.tables.shape import table_births

EVENT = "k string, n bigint, d decimal(12,3), w decimal(27,7), x double"
EVENTS = Topic("events", event=EVENT)
EXACT = Context(prec=80)
FULL = 10**37


def born(columns: str) -> TableBirth:
    """Returns a table with sums and averages of these columns."""
    sums = {f"{of}_total": sum_(of) for of in columns}
    folds = {**sums, **{f"{of}_mean": avg_(of) for of in columns}}

    @pipeline(reads={"events": EVENTS}, writes=[Table("t", keys=("k",), fold=folds)])
    def totals(events: Any) -> dict[str, Any]:
        return {"t": events}

    returned = {column.name: column.type for column in parse_columns(EVENT)}
    return table_births(totals, {"t": returned})[0]


KINDS = {column.name: str(column.type) for column in parse_columns(EVENT)}
# The greatest values of one record.
FIRST: dict[str, Any] = {
    "n": 2**63 - 1,
    "d": Decimal("999999999.999"),
    "w": Decimal("9" * 20 + "." + "9" * 7),
    "x": 1.7976931348623157e308,
}
# A value of a slice's contribution: units of whole numbers and decimals, or a double.
Value = int | float | None
SCALES = {"n": 0, "d": 3, "w": 7}
# The greatest values that a slice may sum, and what keeps sums near both ends of their types.
EXTREMES: dict[str, list[Any]] = {
    "n": [2**63 - 1, -(2**63), 2**64, -(2**64), 10**36, -(10**36), 0, 1, -1],
    "d": [10**12 - 1, 1 - 10**12, 10**22 - 1, 10**22, -(10**22), 10**36, 1, -1],
    "w": [FULL - 1, 1 - FULL, FULL // 2, -FULL // 2, 1, -1, 0],
    "x": [1.7976931348623157e308, -1.7976931348623157e308, 1e308, -1e308, 1.0, -2.5, 0.0],
}


def contribution(key: str | None, values: dict[str, Value]) -> dict[str, Any]:
    """Returns a key's contribution from one value of each column."""
    row: dict[str, Any] = {"k": key}
    for of, value in values.items():
        for name in (f"{of}_total", f"{of}_mean"):
            row[f"_{name}_count"] = 0 if value is None else 1
            if of == "x":
                is_large = value is not None and abs(value) >= 2.0**959
                row[f"_{name}_sum"] = 0.0 if is_large else value
                row[f"_{name}_large"] = (
                    None if value is None else value / 2**64 if is_large else 0.0
                )
                continue
            whole = None if value is None else int(value)
            if of == "w" and whole is not None:
                row[f"_{name}_carry"], whole = divmod(whole, FULL)
            row[f"_{name}_sum"] = None if whole is None else decimal(whole, of)
    return row


def decimal(units: int, of: str) -> Decimal:
    """Returns a number of units as a decimal of the column."""
    return Decimal(units).scaleb(-SCALES[of], EXACT)


def rows(contributions: Sequence[dict[str, Any]], columns: Any) -> pa.Table:
    """Returns the rows as an Arrow table with Spark's types of the columns."""
    return pa.Table.from_pylist(list(contributions), arrow_schema(columns))


def expected(values: Sequence[dict[str, Value]]) -> dict[str, Any]:
    """Computes the row that readers see of one key, with integers of any size."""
    row: dict[str, Any] = {}
    limits = {"n": (-(2**63), 2**63 - 1), "d": (1 - 10**22, 10**22 - 1), "w": (1 - FULL, FULL - 1)}
    for of in (each for each in SCALES if each in values[0]):
        scale = SCALES[of]
        found = [int(each[of]) for each in values if each[of] is not None]  # type: ignore[arg-type]
        total = sum(found)
        fits = limits[of][0] <= total <= limits[of][1]
        served = (total if of == "n" else decimal(total, of)) if found and fits else None
        row |= {f"{of}_total": served, f"{of}_total_overflow": bool(found) and not fits}
        mean = Decimal(total).scaleb(-scale, EXACT)
        row[f"{of}_mean"] = pytest.approx(float(mean) / len(found), rel=1e-15) if found else None
    return row


def drawn(of: str, slices: int) -> list[dict[str | None, dict[str, Value]]]:
    """Draws a value of a column for some keys, for each slice."""
    draw = random.Random(of)
    return [
        {
            key: {of: None if draw.random() < 0.2 else draw.choice(EXTREMES[of])}
            for key in (None, "a", "b")
            if draw.random() < 0.8
        }
        for _ in range(slices)
    ]


def units(value: Any, of: str) -> Value:
    """Returns a record's value in units of its column, or unchanged if it is a double."""
    return int(value.scaleb(SCALES[of], EXACT)) if isinstance(value, Decimal) else value
