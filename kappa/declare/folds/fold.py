"""The base classes of folds, with a method for each use of a fold. Pure.

In the arguments, `name` is the name of the served column, and `types` contains the table's stored
columns with Spark's types, including hidden columns. In the SQL of merges, `t` is the table and `s`
contains the contributions (kappa/tables/merge.py).
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
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.values.columns import Scalar, Type, parse_type

Option = str | int | float
Types = Mapping[str, str]
Quote = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Fold(ABC):
    """The fold of one served column. Each kind of fold is a subclass.

    `column` is the input column, or None to count rows. `kind` is the name of the kind in birth
    certificates, and must never change.
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
        """Returns the values that the user declared as input columns, before they are checked.

        A value may be of any Python type.
        """
        return (self.column,)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Returns the names of the input columns; the result is empty if rows are counted."""
        return () if self.column is None else (self.column,)

    @property
    def is_combined(self) -> bool:
        """Returns True if no merge can express the fold.

        In that case, Kappa reads the stored rows and folds them again with the contributions.
        """
        return True

    @abstractmethod
    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        """Yields the names and types of the stored columns, the served column first.

        Raises DeclarationError if the fold cannot fold the rows that the pipeline's function
        returns.
        """

    @abstractmethod
    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        """Yields Spark SQL that folds the rows of one key into a contribution.

        `given` contains the type of each column of these rows, by the column's name.
        """

    @abstractmethod
    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        """Yields Spark SQL that folds stored rows and contributions of one key into one row."""

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        """Returns Spark SQL, by column, for stored columns that `combination_sql` does not produce.

        The SQL computes these columns from the result of `combination_sql`.
        """
        return {}

    def declared_text(self, name: str) -> str:
        """Returns the fold's text, which is part of the pipeline's version.

        The text also names served columns that a newer release of Kappa has added to this kind of
        fold.
        """
        return str(self)

    def extra_columns(self, name: str) -> tuple[str, ...]:
        """Returns the names of further served columns, in addition to the fold's own column."""
        return ()

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        """Returns the columns that are computed from hidden columns.

        Contributions do not contain these columns.
        """
        return ()

    def narrow_sums(self, name: str, types: Types) -> tuple[str, ...]:
        """Returns the columns that store sums in a type that may be too narrow.

        Only tables of older builds have such columns. A contribution to such a sum has 37 digits.
        """
        return ()

    def overflow_mark(self, name: str) -> str | None:
        """Returns the name of the boolean column that is true if a value did not fit, or None.

        A value does not fit if a sum exceeds its type, or if the values of an array exceed the
        maximum size in bytes. The result is None if the fold has no such column.
        """
        return None

    def compared_columns(self, name: str) -> tuple[str, ...]:
        """Returns the hidden columns that are needed to test whether two values are equal."""
        return ()

    def value_exactness(self, name: str, types: Types) -> Exactness:
        """Returns the exactness of the values.

        If `types` is empty, the result is based on the declaration alone.
        """
        return Exactness.EXACT

    def input_sql(self, given: Types, column: str | None = None) -> str:
        """Returns Spark SQL for an input value, in which NaN becomes null and -0.0 becomes 0.0.

        The input is `column`, or the fold's own column if `column` is None. `given` contains the
        types of the input columns.
        """
        name = str(self.column if column is None else column)
        return _one_spelling(spark_quote(name), parse_type(given[name]))

    def option_value(self, name: str) -> Option:
        """Returns an option by its name. Raises KeyError if the option was not given."""
        return dict(self.options)[name]

    def text_of(self, name: str) -> str:
        """Returns the declaration as text, for messages: `total = sum(x)`."""
        return f"{name} = {self}"

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options)
        return f"{self.kind}({', '.join([self.column or '', *options])})"


class MergedFold(Fold):
    """A fold that a merge can express. Its SQL is valid for Spark, DataFusion and DuckDB.

    The three engines compute the same results from it.
    """

    @property
    def is_combined(self) -> bool:
        """Returns False, because contributions are merged without reading the stored rows first."""
        return False

    @abstractmethod
    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the columns of a stored row after a merge, by quoted column name."""

    def inserted_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the columns of a new row, by quoted column name.

        The value of any other column is the value in the contribution.
        """
        return {}


class ReaggregatedFold(MergedFold):
    """A merged fold whose aggregate function can also combine two results of that function."""

    @property
    def aggregate_name(self) -> str:
        """Returns the name of Spark's aggregate function that computes the fold."""
        return self.kind

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        yield f"{self.aggregate_name}({self.input_sql(given)}) as {spark_quote(name)}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        yield f"{self.aggregate_name}({spark_quote(name)}) as {spark_quote(name)}"


def ignoring_nulls(held: str, contributed: str, both: str, *, alone: str | None = None) -> str:
    """Returns SQL that combines a stored and a contributed value, of which either may be null.

    `held` and `contributed` are the SQL of the two values. The result is `both` if neither value is
    null, `held` if the contributed value is null, and `alone` if the stored value is null. The
    default of `alone` is `contributed`.
    """
    return (
        f"case when {contributed} is null then {held} "
        f"when {held} is null then {contributed if alone is None else alone} else {both} end"
    )


def merge_sides(column: str) -> tuple[str, str]:
    """Returns a quoted column's SQL names in the table (`t`) and in the contributions (`s`)."""
    return f"t.{column}", f"s.{column}"


def whole_option(fold: str, name: str, number: object, least: int, most: int) -> tuple[str, int]:
    """Checks an option of a fold that is a whole number. Returns the option's name and value.

    Raises DeclarationError, with the user's line, if the number is not between `least` and `most`.
    `whole_option` must be called directly by the function that the user's declaration calls,
    because the error shows the line of the user's call.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise DeclarationError(
            f"{Source.of_caller(2)}: {fold} has {name}={number!r}",
            hint=f"give a whole number from {least} to {most}",
        )
    return name, number


def _one_spelling(value: str, kind: Type) -> str:
    """Returns SQL that turns NaN into null and -0.0 into 0.0, for doubles and floats.

    For other types, the SQL is `value` itself. The SQL adds 0, because `-0.0 + 0.0` is `0.0` (IEEE
    754).
    """
    if kind in {Scalar("double"), Scalar("float")}:
        return f"case when isnan({value}) then null else {value} + cast(0 as {kind}) end"
    return value
