"""The base classes of folds. Each method returns the SQL, columns or text for one use. Pure.

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
        """Returns the values that the user has declared as input columns, without checking them.

        A declared value may be of any Python type.
        """
        return (self.column,)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Returns the names of the input columns; the result is empty if rows are counted."""
        return () if self.column is None else (self.column,)

    @property
    def is_combined(self) -> bool:
        """Returns True if the fold cannot be expressed by a merge statement.

        In that case, Kappa reads the stored rows and folds them again with the contributions.
        """
        return True

    @abstractmethod
    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        """Yields the names and types of the columns that a table stores for the fold.

        The served column is first. `rows` are the columns that the pipeline's function returns.
        Raises DeclarationError if the types of these columns do not fit the fold.
        """

    @abstractmethod
    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        """Yields Spark SQL that folds the rows of one key in a slice into a contribution.

        `given` contains the type of each column of these rows, by the column's name.
        """

    @abstractmethod
    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        """Yields Spark SQL that folds a key's stored row and its contributions into one row."""

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        """Returns Spark SQL for stored columns that `combination_sql` does not compute, by column.

        The SQL computes these columns from the result of the SQL of `combination_sql`.
        """
        return {}

    def declared_text(self, name: str) -> str:
        """Returns a text that describes the fold. The text is part of the pipeline's version.

        If a newer release of Kappa has added served columns to this kind of fold, the text also
        names these columns.
        """
        return str(self)

    def extra_columns(self, name: str) -> tuple[str, ...]:
        """Returns the names of further served columns, in addition to the fold's own column."""
        return ()

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        """Returns the names of the fold's columns that are computed from its hidden columns.

        Contributions do not contain these columns.
        """
        return ()

    def narrow_sums(self, name: str, types: Types) -> tuple[str, ...]:
        """Returns the names of columns whose type may be too narrow for the sums that they store.

        Only tables that an older Kappa created have such columns. In a contribution, such a sum has
        the wider type: a decimal of 37 digits.
        """
        return ()

    def overflow_mark(self, name: str) -> str | None:
        """Returns the name of a boolean column that is true if a value of the fold did not fit.

        A value does not fit if a sum exceeds its type, or if the values of an array exceed the
        maximum size in bytes. Returns None if the fold has no such column.
        """
        return None

    def compared_columns(self, name: str) -> tuple[str, ...]:
        """Returns the names of hidden columns without which two values cannot be compared."""
        return ()

    def value_exactness(self, name: str, types: Types) -> Exactness:
        """Returns the exactness of the fold's values, which decides when two values count as equal.

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
        """Returns the value of an option of the fold.

        Raises KeyError if the option was not given.
        """
        return dict(self.options)[name]

    def text_of(self, name: str) -> str:
        """Returns the declaration of the fold as text, for messages: `total = sum(x)`."""
        return f"{name} = {self}"

    def __str__(self) -> str:
        options = (f"{name}={value}" for name, value in self.options)
        return f"{self.kind}({', '.join([self.column or '', *options])})"


class MergedFold(Fold):
    """A fold that a merge statement can express.

    Its SQL is valid for Spark, DataFusion and DuckDB, and has the same result in all three engines.
    """

    @property
    def is_combined(self) -> bool:
        """Returns False, because a merge statement can express the fold."""
        return False

    @abstractmethod
    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the new values of a stored row's columns, by quoted column name.

        The SQL is for a merge, in which `t` is the table and `s` contains the contributions.
        """

    def inserted_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for columns of a row that a merge inserts, by quoted column name.

        For any other column, the merge inserts the value in the contribution.
        """
        return {}


class ReaggregatedFold(MergedFold):
    """A fold whose aggregate function can also combine two of its own results.

    For example, `max` is such a function.
    """

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
    """Returns the names of a quoted column in the SQL of a merge.

    The first name is that of the column in the table (`t`), and the second is that in the
    contributions (`s`).
    """
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
    """Returns SQL that replaces NaN by null and -0.0 by 0.0 in doubles and floats.

    For other types, the SQL is `value` itself. The SQL adds 0, because `-0.0 + 0.0` is `0.0` (IEEE
    754).
    """
    if kind in {Scalar("double"), Scalar("float")}:
        return f"case when isnan({value}) then null else {value} + cast(0 as {kind}) end"
    return value
