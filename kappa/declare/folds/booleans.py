"""The folds `and_` and `or_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.declare.folds.fold import Quote, ReaggregatedFold, Types, ignoring_nulls, merge_sides
from kappa.declare.folds.returned import ReturnedColumns


def and_(column: str) -> And:
    """Returns True if all values of a boolean column are true, ignoring nulls. Exact.

    Example:
        Table("pages", keys=("page",), fold={"all_returning": and_("is_returning")})
    """
    return And(column)


def or_(column: str) -> Or:
    """Returns True if any value of a boolean column is true, ignoring nulls. Exact.

    Example:
        Table("pages", keys=("page",), fold={"any_returning": or_("is_returning")})
    """
    return Or(column)


class _Joined(ReaggregatedFold):
    """Booleans joined by the SQL operator that the kind is named after."""

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
    """True if all values are true."""

    kind = "and"


class Or(_Joined):
    """True if any value is true."""

    kind = "or"
