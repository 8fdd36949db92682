"""Totals: sums in a type so wide that no number of records can cause an overflow. Pure.

The sum and the average use totals. A total is exact for whole numbers and decimals. Totals are
combined only by additions, so their value does not depend on the order of records, or on how
records are divided into slices. If the value does not fit the served column, the total is still
stored, and the value may fit again later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal as Exact

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Fold, Quote, Types, ignoring_nulls, merge_sides
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.values.columns import INTEGERS, Decimal, Scalar, Type, parse_type

# One digit less than the engines have: Spark drops digits behind the point from a sum that might
# need 39.
_WIDE_DIGITS = 37
WIDE = f"decimal({_WIDE_DIGITS},0)"
# A served sum has so many digits more than its values.
_SUM_DIGITS = 10
_WIDEST_SUMMED = _WIDE_DIGITS - _SUM_DIGITS
# Values of so many digits, and of bigint, fill 37 only after 10^18 records.
_MOST_WITHOUT_CARRY = 19
# Doubles from 2^959 on are summed apart, divided by 2^64: neither part can become infinite before
# 2^63 records have been added.
_LARGE = "cast('4.8726570057e288' as double)"
_SCALE = "cast('18446744073709551616' as double)"
_GREATEST_DOUBLE = "cast('1.7976931348623157e308' as double)"


def summed_type(fold: Fold, name: str, rows: ReturnedColumns) -> Type:
    """Returns the type of the served column of a sum.

    Raises DeclarationError if values of the input column cannot be added.
    """
    kind = rows.type_of(str(fold.column), fold.text_of(name))
    if isinstance(kind, Scalar) and kind.name in INTEGERS:
        return Scalar("bigint")
    if kind in {Scalar("double"), Scalar("float")}:
        return Scalar("double")
    if isinstance(kind, Decimal) and kind.precision <= _WIDEST_SUMMED:
        return Decimal(kind.precision + _SUM_DIGITS, kind.scale)
    if isinstance(kind, Decimal):
        raise rows.table_error(
            f"sums {fold.column} of type {kind}, which has no digits left for a sum",
            hint=f"cast it to at most {_WIDEST_SUMMED} digits in the function",
        )
    raise rows.table_error(
        f"folds {fold.text_of(name)} over the type {kind}", hint="only numbers have sums and means"
    )


def total_columns(name: str, served: Type) -> Iterator[tuple[str, str]]:
    """Yields the names and types of the hidden columns in which a sum is stored.

    These types are wider than `served`, which is the type of the served column `name`.
    """
    yield _sum_column(name), carried_type(str(served))
    if served == Scalar("double"):
        yield _large_column(name), "double"
    elif isinstance(served, Decimal) and served.precision - _SUM_DIGITS > _MOST_WITHOUT_CARRY:
        yield _carry_column(name), "bigint"


def total_of(name: str, types: Types) -> Total:
    """Returns the total of the served column `name`: its sum, as hidden columns store it.

    `types` contains the table's stored columns; they show in which form the total is stored.
    """
    if _carry_column(name) in types:
        return CarriedTotal(_sum_column(name), types[_sum_column(name)], _carry_column(name))
    if _large_column(name) in types:
        return DoubleTotal(_sum_column(name), "double", _large_column(name))
    # A build that was born before totals were wide has the served sum alone, or beside it the sum
    # of an average with the type of a served sum. Such a build goes on so.
    held = _sum_column(name) if _sum_column(name) in types else name
    return Total(held, types[held])


def carried_type(kind: str) -> str:
    """Returns the type that a sum has in a contribution. `kind` is the type of the stored sum.

    The result is a decimal of 37 digits, or double for doubles.
    """
    match parse_type(kind):
        case Scalar("bigint"):
            return WIDE
        case Decimal(scale=scale):
            return f"decimal({_WIDE_DIGITS},{scale})"
        case _:
            return kind


@dataclass(frozen=True, slots=True)
class Total:
    """A total: a sum that a table stores in one column, with 37 digits.

    In a table that an older Kappa created, the column may have fewer digits. In such a table, the
    cast of a sum that does not fit fails in every engine.
    """

    column: str
    kind: str

    @property
    def is_narrow(self) -> bool:
        """Returns True if the column of the total has a narrower type than sums in contributions.

        Then a sum may not fit the column.
        """
        return carried_type(self.kind) != self.kind

    def contribution_sql(self, value: str, kind: Type) -> Iterator[str]:
        """Yields Spark SQL that adds the input values of one key, for a contribution.

        `value` is the SQL of an input value, and `kind` is its type.
        """
        yield f"{_sum_aggregate(value, kind, self.kind)} as {spark_quote(self.column)}"

    def combination_sql(self) -> Iterator[str]:
        """Yields Spark SQL that adds the totals in a key's stored row and in its contributions."""
        yield f"sum({spark_quote(self.column)}) as {spark_quote(self.column)}"

    def combined_sql(self) -> Mapping[str, str]:
        """Returns Spark SQL that converts the result of `combination_sql` to the stored types.

        The SQL is by column name.
        """
        return {self.column: _cast_sql(spark_quote(self.column), self.kind)}

    def updated_values(self, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the total's columns in a stored row that a merge updates.

        The SQL adds the total in a contribution to the stored total. It is by quoted column name.
        """
        held, contributed = merge_sides(quote(self.column))
        both = _cast_sql(f"cast({held} as {carried_type(self.kind)}) + {contributed}", self.kind)
        alone = _cast_sql(contributed, self.kind)
        return {self.column: ignoring_nulls(held, contributed, both, alone=alone)}

    def inserted_values(self, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the total's columns in a row that a merge inserts.

        The SQL is by quoted column name.
        """
        return {self.column: _cast_sql(f"s.{quote(self.column)}", self.kind)}

    def value_sql(self, kept: Mapping[str, str], served: str) -> str:
        """Returns SQL for the total's value in the type `served`, the type of the served column.

        The result of the SQL is null if the value does not fit. `kept` contains the SQL of the
        total's columns, by name.
        """
        return f"try_cast({kept[self.column]} as {served})"

    def quotient_sql(self, kept: Mapping[str, str], counted: str) -> str:
        """Returns SQL for the total's value divided by `counted`, as a double.

        `kept` contains the SQL of the total's columns, by name. `counted` is SQL for a number that
        is not 0.
        """
        return f"{_as_double(kept[self.column], self.kind)} / cast({counted} as double)"


@dataclass(frozen=True, slots=True)
class CarriedTotal(Total):
    """A total of decimals that may need more than 37 digits, stored in two columns.

    The value is `carry` times 10^37 units, plus a remainder. (A unit is a 1 in the last digit of
    the decimal.) The remainder is at least 0 and less than 10^37 units, so each value has only one
    representation. The number 10^37 itself has 38 digits and does not fit the type of the
    remainder, so the SQL subtracts half of 10^37 twice.
    """

    carry: str

    def contribution_sql(self, value: str, kind: Type) -> Iterator[str]:
        summed = _sum_aggregate(value, kind, self.kind)
        raised = self._narrow_sql(
            f"{self._narrow_sql(f'{summed} + {self._half_sql}')} + {self._half_sql}"
        )
        rest, carry = spark_quote(self.column), spark_quote(self.carry)
        yield f"case when {summed} < 0 then {raised} else {summed} end as {rest}"
        yield f"case when {summed} < 0 then -1L when {summed} >= 0 then 0L end as {carry}"

    def combination_sql(self) -> Iterator[str]:
        rest, carry = spark_quote(self.column), spark_quote(self.carry)
        one = f"max({rest})"
        other = f"case when count({rest}) > 1 then min({rest}) else cast(0 as {self.kind}) end"
        yield f"{self._rest_sql(one, other)} as {rest}"
        yield f"sum({carry}) + {self._carry_sql(one, other)} as {carry}"

    def combined_sql(self) -> Mapping[str, str]:
        return {each: spark_quote(each) for each in (self.column, self.carry)}

    def updated_values(self, quote: Quote) -> Mapping[str, str]:
        rests, carries = merge_sides(quote(self.column)), merge_sides(quote(self.carry))
        carry = f"{carries[0]} + {carries[1]} + {self._carry_sql(*rests)}"
        return {
            self.column: ignoring_nulls(*rests, self._rest_sql(*rests)),
            self.carry: ignoring_nulls(*carries, carry),
        }

    def inserted_values(self, quote: Quote) -> Mapping[str, str]:
        return {each: f"s.{quote(each)}" for each in (self.column, self.carry)}

    def value_sql(self, kept: Mapping[str, str], served: str) -> str:
        return f"try_cast({self._within_sql(kept)} as {served})"

    def quotient_sql(self, kept: Mapping[str, str], counted: str) -> str:
        full = f"cast('1e{_WIDE_DIGITS - self._decimal_scale}' as double)"
        beyond = (
            f"cast({kept[self.carry]} as double) * {full}"
            f" + {_as_double(kept[self.column], self.kind)}"
        )
        within = _as_double(self._within_sql(kept), self.kind)
        near = f"{kept[self.carry]} in (-1, 0)"
        return f"case when {near} then {within} else {beyond} end / cast({counted} as double)"

    @property
    def _wide_type(self) -> str:
        return f"decimal({_WIDE_DIGITS + 1},{self._decimal_scale})"

    @property
    def _decimal_scale(self) -> int:
        kind = parse_type(self.kind)
        assert isinstance(kind, Decimal), "only decimals have a carry"
        return kind.scale

    @property
    def _half_sql(self) -> str:
        """Returns SQL for half of 10^37 units."""
        return self._units_sql(5 * 10 ** (_WIDE_DIGITS - 1), self.kind)

    def _units_sql(self, units: int, kind: str) -> str:
        return f"cast('{Exact(units).scaleb(-self._decimal_scale):f}' as {kind})"

    def _narrow_sql(self, value: str) -> str:
        return f"cast({value} as {self.kind})"

    def _is_full(self, one: str, other: str) -> str:
        return f"{one} + {other} >= {self._units_sql(10**_WIDE_DIGITS, self._wide_type)}"

    def _rest_sql(self, one: str, other: str) -> str:
        less = " + ".join(self._narrow_sql(f"{each} - {self._half_sql}") for each in (one, other))
        # try_cast: an engine may compute the branch that is not taken, too.
        return (
            f"case when {self._is_full(one, other)} then try_cast({less} as {self.kind})"
            f" else try_cast({one} + {other} as {self.kind}) end"
        )

    def _carry_sql(self, one: str, other: str) -> str:
        return f"case when {self._is_full(one, other)} then 1 else 0 end"

    def _within_sql(self, kept: Mapping[str, str]) -> str:
        """Returns SQL for the total's value as a decimal of 38 digits.

        The result of the SQL is null if the value has more digits. `kept` contains the SQL of the
        total's columns, by name.
        """
        rest, carry = kept[self.column], kept[self.carry]
        negative = f"{self._narrow_sql(f'{rest} - {self._half_sql}')} - {self._half_sql}"
        return (
            f"case {carry} when 0 then cast({rest} as {self._wide_type}) when -1 then {negative} "
            "end"
        )


@dataclass(frozen=True, slots=True)
class DoubleTotal(Total):
    """A total of doubles in two columns.

    One column contains the sum of the values whose absolute value is below about 4.9e288. The
    column `large` contains the sum of all other values, divided by 2^64. So neither sum becomes
    infinite.
    """

    large: str

    def contribution_sql(self, value: str, kind: Type) -> Iterator[str]:
        double = f"cast({value} as double)"
        is_large, there = f"abs({double}) >= {_LARGE}", f"{double} is not null"
        usual = f"sum(case when {is_large} then 0D when {there} then {double} end)"
        large = f"sum(case when {is_large} then {double} / {_SCALE} when {there} then 0D end)"
        yield f"{usual} as {spark_quote(self.column)}"
        yield f"{large} as {spark_quote(self.large)}"

    def combination_sql(self) -> Iterator[str]:
        for column in map(spark_quote, (self.column, self.large)):
            yield f"sum({column}) as {column}"

    def combined_sql(self) -> Mapping[str, str]:
        return {each: spark_quote(each) for each in (self.column, self.large)}

    def updated_values(self, quote: Quote) -> Mapping[str, str]:
        columns = {each: merge_sides(quote(each)) for each in (self.column, self.large)}
        return {each: ignoring_nulls(*both, " + ".join(both)) for each, both in columns.items()}

    def inserted_values(self, quote: Quote) -> Mapping[str, str]:
        return {each: f"s.{quote(each)}" for each in (self.column, self.large)}

    def value_sql(self, kept: Mapping[str, str], served: str) -> str:
        return _finite_sql(f"({kept[self.column]} + {kept[self.large]} * {_SCALE})")

    def quotient_sql(self, kept: Mapping[str, str], counted: str) -> str:
        usual, large = (
            f"{kept[each]} / cast({counted} as double)" for each in (self.column, self.large)
        )
        return _finite_sql(f"({usual} + {large} * {_SCALE})")


def _finite_sql(value: str) -> str:
    # NaN is greater than all other numbers to Spark, DuckDB and DataFusion.
    return f"case when abs({value}) <= {_GREATEST_DOUBLE} then {value} end"


def _as_double(value: str, kind: str) -> str:
    # Engines cast decimals to doubles in different ways, but all read a decimal's text as the
    # nearest double.
    exact = f"cast({value} as string)" if kind.startswith("decimal") else value
    return f"cast({exact} as double)"


def _sum_aggregate(value: str, kind: Type, stored: str) -> str:
    """Returns Spark SQL that sums values of the type `kind` for a column of the type `stored`."""
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
            return f"cast(sum({value}) as {carried_type(stored)})"


def _cast_sql(summed: str, kind: str) -> str:
    """Returns SQL that casts a sum to the type `kind` of the column that stores the sum.

    Only the types of sums may be cast here: bigint, decimal and double have the same meaning in all
    engines. Other types do not; for example, DataFusion's `timestamp` counts nanoseconds, and so
    cannot represent a time after the year 2262.
    """
    return f"cast({summed} as {kind})"


def _sum_column(name: str) -> str:
    """Returns the name of the first hidden column in which the sum of a served column is stored."""
    return f"_{name}_sum"


def _carry_column(name: str) -> str:
    """Returns the name of the hidden column that contains the carry, in units of 10^37."""
    return f"_{name}_carry"


def _large_column(name: str) -> str:
    """Returns the name of the hidden column that contains the sum of a column's large doubles."""
    return f"_{name}_large"
