"""Sums that overflow nowhere on their way: the sum and the average are made of them. Pure.

Sums of whole numbers and decimals are added with 37 digits and cast back. Every engine refuses
the cast if the result does not fit; delta-rs would wrap a plain sum silently.
"""

from __future__ import annotations

from kappa.folds.fold import Fold, ignoring_nulls
from kappa.folds.returned import Returned
from kappa.values.columns import INTEGERS, Decimal, Scalar, Type, parse_type

# One digit less than both engines have: Spark drops digits behind the point from a sum that might
# need 39.
_WIDE_DIGITS = 37
WIDE = f"decimal({_WIDE_DIGITS},0)"
# Ten digits more than a row's: ten billion rows cannot overflow, and both writers add without
# loss within 37.
_SUM_DIGITS = 10
_WIDEST_SUMMED = _WIDE_DIGITS - _SUM_DIGITS


def summed_type(fold: Fold, name: str, rows: Returned) -> Type:
    """Returns the type of a stored sum. Raises DeclarationError if it cannot be summed."""
    kind = rows.type_of(str(fold.column), fold.text_of(name))
    if isinstance(kind, Scalar) and kind.name in INTEGERS:
        return Scalar("bigint")
    if kind in {Scalar("double"), Scalar("float")}:
        return Scalar("double")
    if isinstance(kind, Decimal) and kind.precision <= _WIDEST_SUMMED:
        return Decimal(kind.precision + _SUM_DIGITS, kind.scale)
    if isinstance(kind, Decimal):
        raise rows.refused(
            f"sums {fold.column} of type {kind}, and a sum of it may not fit",
            hint=f"cast it to at most {_WIDEST_SUMMED} digits in the function",
        )
    raise rows.refused(
        f"folds {fold.text_of(name)} over the type {kind}", hint="only numbers have sums and means"
    )


def carried(kind: str) -> str:
    """Returns the type in which sums travel: double, or one that cannot overflow."""
    match parse_type(kind):
        case Scalar("bigint"):
            return WIDE
        case Decimal(scale=scale):
            return f"decimal({_WIDE_DIGITS},{scale})"
        case _:
            return kind


def sum_aggregate(value: str, kind: Type, stored: str) -> str:
    """Returns Spark's SQL that sums values of this type for a column that is `stored` so."""
    match kind:
        case Scalar("bigint"):
            # In two halves of 32 bits, exact for two billion rows. A plain sum would overflow, or
            # not, on its way to a total that fits, by the order of the rows.
            high = f"cast(sum(shiftright({value}, 32)) as decimal(20,0))"
            low = f"cast(sum({value} & 4294967295L) as decimal(20,0))"
            return f"cast({high} * 4294967296 + {low} as {WIDE})"
        case Scalar("float" | "double"):
            return f"sum(cast({value} as double))"
        case Scalar():
            return f"cast(sum(cast({value} as bigint)) as {WIDE})"
        case _:
            return f"cast(sum({value}) as {carried(stored)})"


def sum_updated(held: str, contributed: str, kind: str) -> str:
    """Returns the SQL of a stored sum of this type after a merge."""
    both = narrow(f"cast({held} as {carried(kind)}) + {contributed}", kind)
    return ignoring_nulls(held, contributed, both, alone=narrow(contributed, kind))


def narrow(summed: str, kind: str) -> str:
    """Returns the SQL that casts a sum to the type in which it is stored.

    Only sums are cast: bigint, decimal and double mean the same to all engines. DataFusion's
    `timestamp` would be one of nanoseconds, which ends in the year 2262.
    """
    return f"cast({summed} as {kind})"
