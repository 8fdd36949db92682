"""The folds `and_` and `or_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.declare.folds.fold import Quote, ReaggregatedFold, Types, ignoring_nulls, merge_sides
from kappa.declare.folds.returned_columns import ReturnedColumns


def and_(column: str) -> And:
    """Computes whether all values of a boolean column are true; nulls are ignored. Exact.

    The result is null if all values are null.

    Example:
        Table("pages", keys=("page",), fold={"all_returning": and_("is_returning")})
    """
    return And(column)


def or_(column: str) -> Or:
    """Computes whether any value of a boolean column is true; nulls are ignored. Exact.

    The result is null if all values are null.

    Example:
        Table("pages", keys=("page",), fold={"any_returning": or_("is_returning")})
    """
    return Or(column)


class _Joined(ReaggregatedFold):
    """A fold that combines booleans with an SQL operator.

    The operator is `and` or `or`; it is also the name of the fold's kind.
    """

    @property
    def aggregate_name(self) -> str:
        return f"bool_{self.kind}"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        kind = rows.type_of(str(self.column), self.text_of(name))
        if str(kind) != "boolean":
            raise rows.table_error(
                f"folds {self.text_of(name)} over the type {kind}",
                hint="only booleans are folded so: give a condition a name",
            )
        yield name, str(kind)

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        held, contributed = merge_sides(quote(name))
        both = f"({held} {self.kind} {contributed})"
        return {quote(name): ignoring_nulls(held, contributed, both)}


class And(_Joined):
    """The fold whose result is true if all values are true."""

    kind = "and"


class Or(_Joined):
    """The fold whose result is true if any value is true."""

    kind = "or"
