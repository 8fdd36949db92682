"""The meanings of a fold, at each place that uses folds. Pure.

In names and SQL, `name` is the served column, and `types` has the stored columns of the table with
Spark's types, hidden columns included. In merges `t` is the table and `s` the contributions
(kappa/tables/merge.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.sql import spark_quote
from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.returned import ReturnedColumns
from kappa.declare.values.columns import Scalar, Type, parse_type

Option = str | int | float
Types = Mapping[str, str]
Quote = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Fold(ABC):
    """The fold of one served column: its options, and its input column, or None to count rows.

    Each kind of fold is a class. `kind` is the name of the kind in birth certificates, and must
    never change.
    """

    kind: ClassVar[str]
    # True if the log's order decides which value is kept.
    by_order: ClassVar[bool] = False
    # True if the birth certificate keeps the type of the input values, which the column's own type
    # does not show.
    is_sketched: ClassVar[bool] = False

    column: str | None = None
    options: tuple[tuple[str, Option], ...] = ()

    @property
    def given_columns(self) -> tuple[object, ...]:
        """Lists the declared input columns as given, even if they are not names."""
        return (self.column,)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Lists the input columns that the fold reads."""
        return () if self.column is None else (self.column,)

    @property
    def is_combined(self) -> bool:
        """Returns True if no merge can express the fold: stored rows are then read and folded."""
        return True

    @abstractmethod
    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        """Lists the stored columns, the served column first.

        Raises DeclarationError if the fold cannot fold these rows.
        """

    @abstractmethod
    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        """Lists Spark's SQL that folds rows of one key, of `given` columns, into a contribution."""

    @abstractmethod
    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        """Lists Spark's SQL that folds stored rows and contributions of one key into one row."""

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        """Returns Spark's SQL for the columns whose stored form differs from `combinations`."""
        return {}

    def declared_text(self, name: str) -> str:
        """Returns the declaration for a version, with columns that the fold has begun to serve."""
        return str(self)

    def extra_columns(self, name: str) -> tuple[str, ...]:
        """Lists the served columns beside the fold's own column."""
        return ()

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        """Lists the columns that are computed from hidden columns, and so are not contributed."""
        return ()

    def narrow_sums(self, name: str, types: Types) -> tuple[str, ...]:
        """Lists the sums of older builds that travel in 37 digits and may not fit."""
        return ()

    def overflow_mark(self, name: str) -> str | None:
        """Returns the boolean column that is true where the value does not fit, or None.

        A sum may not fit its type, and the values of an array may have more bytes than a row can
        have. The result is None if the fold has no such column.
        """
        return None

    def compared_columns(self, name: str) -> tuple[str, ...]:
        """Lists the hidden columns that a comparison of two values needs."""
        return ()

    def value_exactness(self, name: str, types: Types) -> Exactness:
        """Returns how exact the values are; without types, as far as the declaration decides."""
        return Exactness.EXACT

    def input_sql(self, given: Types, column: str | None = None) -> str:
        """Returns Spark's SQL for an input value. Equal values get the same spelling."""
        name = str(self.column if column is None else column)
        return _one_spelling(spark_quote(name), parse_type(given[name]))

    def option_value(self, name: str) -> Option:
        """Returns an option by name. Raises KeyError if the option was not given."""
        return dict(self.options)[name]

    def text_of(self, name: str) -> str:
        """Returns the declaration in words, for messages: `total = sum(x)`."""
        return f"{name} = {self}"

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options)
        return f"{self.kind}({', '.join([self.column or '', *options])})"


class MergedFold(Fold):
    """A fold that a merge can express, in SQL that Spark, DataFusion and DuckDB read alike."""

    @property
    def is_combined(self) -> bool:
        """Returns False: contributions are merged without reading the stored rows first."""
        return False

    @abstractmethod
    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns each column's value after a merge into a stored row, by the quoted name."""

    def inserted_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns a new row's values of the columns that differ from the contributed values."""
        return {}


class ReaggregatedFold(MergedFold):
    """A merged fold of one column: Spark's aggregate that makes a value also joins two values."""

    @property
    def aggregate_name(self) -> str:
        """Returns the name of Spark's aggregate function."""
        return self.kind

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        yield f"{self.aggregate_name}({self.input_sql(given)}) as {spark_quote(name)}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        yield f"{self.aggregate_name}({spark_quote(name)}) as {spark_quote(name)}"


def ignoring_nulls(held: str, contributed: str, both: str, *, alone: str | None = None) -> str:
    """Returns SQL for `both`, or for the only side that is not null."""
    return (
        f"case when {contributed} is null then {held} "
        f"when {held} is null then {contributed if alone is None else alone} else {both} end"
    )


def merge_sides(column: str) -> tuple[str, str]:
    """Returns a quoted column of the table and of the contributions."""
    return f"t.{column}", f"s.{column}"


def whole_option(fold: str, name: str, number: object, least: int, most: int) -> tuple[str, int]:
    """Returns a fold's option that is a whole number.

    Raises DeclarationError with the declaring line. The caller must be the function that the
    declaring line calls.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise DeclarationError(
            f"{Source.of_caller(2)}: {fold} has {name}={number!r}",
            hint=f"give a whole number from {least} to {most}",
        )
    return name, number


def _one_spelling(value: str, kind: Type) -> str:
    """Returns SQL that turns NaN into null and -0.0 into 0.0.

    `-0.0 + 0.0` is `0.0` (IEEE 754).
    """
    if kind in {Scalar("double"), Scalar("float")}:
        return f"case when isnan({value}) then null else {value} + cast(0 as {kind}) end"
    return value
