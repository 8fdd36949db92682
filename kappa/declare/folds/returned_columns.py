"""The columns that a function returns for a table, and checks of keys and folds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kappa.base.errors import DeclarationError, did_you_mean
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.values.columns import Array, Scalar, Struct, Type


@dataclass(frozen=True, slots=True)
class ReturnedColumns:
    """The columns that a pipeline's function returns for a table.

    `table` identifies the table in errors: it contains the file, the line and the table's name.
    `types` maps the names of the columns to their types.
    """

    table: str
    types: Mapping[str, Type]

    def type_of(self, column: str, what: str) -> Type:
        """Returns the type of a column. `what` names the use of the column in the error.

        Raises DeclarationError if the function does not return the column.
        """
        if column not in self.types:
            raise missing_column_error(self.table, column, what, self.types)
        return self.types[column]

    def check_columns(self, columns: tuple[tuple[str, str], ...], what: str) -> None:
        """Raises DeclarationError if a needed column is missing or has another type.

        `columns` contains the name and the type of each needed column. `what` names the use of the
        columns in the error.
        """
        for name, kind in columns:
            if str(self.types.get(name)) != kind:
                got = (
                    f"returns it as {self.types[name]}"
                    if name in self.types
                    else "does not return it"
                )
                wanted = ", ".join(repr(each) for each, _ in columns)
                raise self.table_error(
                    f"needs column {name} {kind} for {what}, and the function {got}",
                    hint=f"keep what tells the order in the rows: .select(..., {wanted})",
                )

    def check_time(self, column: str) -> None:
        """Raises DeclarationError if the time in `column` cannot decide when rows expire.

        The column must be a timestamp, and the rows must also contain the columns of their position
        in the log: log time, topic, partition and offset.
        """
        kind = self.type_of(column, "expire")
        if kind != Scalar("timestamp"):
            raise self.table_error(
                f"has expire={column!r}, which is of type {kind} and no timestamp",
                hint=f'cast it in the function: F.col("{column}").cast("timestamp")',
            )
        self.check_columns(FOLD_ORDER_COLUMNS, "expire")

    def ordered_type_of(self, column: str, what: str) -> Type:
        """Returns the type of a column.

        Raises DeclarationError if values of this type have no order, or if the function does not
        return the column. `what` names the use of the column in the error.
        """
        kind = self.type_of(column, what)
        if isinstance(kind, Array | Struct) or str(kind) == "boolean":
            raise self.table_error(f"folds {what} over the type {kind}, which has no order")
        return kind

    def distinct_type_of(self, column: str, what: str) -> Type:
        """Returns the type of a column.

        Raises DeclarationError if the type is an array or a struct, or if the function does not
        return the column. `what` names the use of the column in the error.
        """
        kind = self.type_of(column, what)
        if isinstance(kind, Array | Struct):
            raise self.table_error(
                f"folds {what} over the type {kind}",
                hint="give it one value a row: explode an array, name a field of a struct",
            )
        return kind

    def table_error(self, why: str, *, hint: str = "") -> DeclarationError:
        """Returns the error for a table that cannot be created.

        The message is the text that identifies the table, followed by `why`.
        """
        return DeclarationError(f"{self.table} {why}", hint=hint)


def missing_column_error(
    table: str, column: str, what: str, returned: Iterable[str]
) -> DeclarationError:
    """Returns the error for a table whose function does not return a needed column.

    `what` names the use of the column, and `returned` are the columns that the function returns.
    """
    columns = tuple(returned)
    return DeclarationError(
        f"{table} needs column {column} for {what}, and the function does not return it",
        hint=f"{did_you_mean(column, columns)} "
        f"it returns {', '.join(columns) or 'no column'}".lstrip(),
    )
