"""The exactness of a fold's values, and the test that two values count as equal. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from kappa.base.sql import quoted

# The order in which doubles are added changes the last digits of their sum. Equal sums may be so
# far apart, relative to the larger sum, or absolute if both are less than 1.
CLOSE = 1e-9


class Exactness(StrEnum):
    """The exactness of a fold's values, which decides when two values count as equal.

    Exact values and estimates do not depend on how records are divided into slices; two such values
    must be equal. Rounded values are computed from sums of doubles, and count as equal if they
    differ by no more than `CLOSE`. Approximate values are random. Each approximate value has a
    range that contains the true value; two approximate values count as equal if their ranges
    overlap.
    """

    EXACT = "exact"
    ESTIMATED = "estimated"
    ROUNDED = "rounded"
    APPROXIMATE = "approximate"

    def are_equal(self, column: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Returns True if two rows' values of a column count as equal."""
        if one[column] is None or other[column] is None:
            return one[column] is other[column]
        match self:
            case Exactness.EXACT | Exactness.ESTIMATED:
                return bool(one[column] == other[column])
            case Exactness.ROUNDED:
                return math.isclose(one[column], other[column], rel_tol=CLOSE, abs_tol=CLOSE)
            case Exactness.APPROXIMATE:
                low, high = range_columns(column)
                return bool(one[low] <= other[high] and other[low] <= one[high])

    def differs_sql(self, column: str) -> str:
        """Returns a DuckDB condition that is true if two values of a column do not count as equal.

        The two values are in the rows `o` and `n`, which are names in the SQL.
        """
        old, new = f"o.{quoted(column)}", f"n.{quoted(column)}"
        distinct = f"{old} is distinct from {new}"
        match self:
            case Exactness.EXACT | Exactness.ESTIMATED:
                return f"({distinct})"
            case Exactness.ROUNDED:
                # Null, NaN and infinity have no distance.
                alike = (
                    f"isfinite({old}) and isfinite({new}) and "
                    f"abs({new} - {old}) <= {CLOSE!r} * greatest(abs({old}), abs({new}), 1)"
                )
            case Exactness.APPROXIMATE:
                low, high = map(quoted, range_columns(column))
                alike = f"o.{low} <= n.{high} and n.{low} <= o.{high}"
        return f"({distinct} and not coalesce({alike}, false))"


def range_columns(column: str) -> tuple[str, str]:
    """Returns the names of the hidden columns that contain the bounds of an approximate value.

    The first name is that of the lower bound, and the second name is that of the upper bound.
    """
    return f"_{column}_low", f"_{column}_high"
