"""The fold `top_k`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Fold, Option, Types, whole_option
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.set import cut_column, overflow_column
from kappa.declare.folds.sizes import (
    Size,
    always_fits,
    first_values,
    size_of,
    sum_of_sizes,
)
from kappa.declare.values.columns import Array, Column, Scalar, Struct, Type, parse_type

# Of the log time, topic, partition and offset of a row.
_ORDER_BYTES = 64


def top_k(column: str, k: int = 10, *, by: str | None = None) -> TopK:
    """Keeps the values of a column in the `k` rows with the greatest `by`, greatest first. Exact.

    Without `by`, rows are ranked by the value itself. If two rows have equal ranks, the row that is
    later by log time, topic, partition and offset comes first. Rows with a null value or a null
    `by` are ignored. If two rows have the same value, the array contains it twice. The column may
    be a struct, to keep several values of a row. If the values exceed 16 MiB, only the first values
    that fit into 16 MiB are kept. The boolean column `<name>_overflow` is true if there were more
    rows with values than are kept.

    Example:
        Table("pages", keys=("page",), fold={"slowest": top_k("visitor", 3, by="ms")})
    """
    options: tuple[tuple[str, Option], ...] = (whole_option("top_k", "k", k, 1, 10_000),)
    return TopK(column, options if by is None else (*options, ("by", by)))


class TopK(Fold):
    """The fold that stores the values of the rows with the greatest ranks.

    A hidden column contains the ranks of these rows, and the positions of the rows in the log.
    """

    kind = "top_k"
    by_order = True

    @property
    def given_columns(self) -> tuple[object, ...]:
        return (self.column, dict(self.options).get("by", self.column))

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Returns the name of the column with the values, and the column `by` if it is declared."""
        by = dict(self.options).get("by")
        return (str(self.column),) if by is None else (str(self.column), str(by))

    def ranked_types(self, name: str, rows: ReturnedColumns) -> tuple[Type, Type]:
        """Returns the type by which the fold ranks rows, and the type of the stored values.

        Raises DeclarationError if the fold cannot rank the rows that the pipeline's function
        returns.
        """
        by = rows.ordered_type_of(self.input_columns[-1], self.text_of(name))
        return by, rows.type_of(str(self.column), self.text_of(name))

    def ranked_sql(self, given: Types) -> tuple[str, str, str]:
        """Returns three texts of Spark SQL: for a row's rank, for its value, and a condition.

        The condition is true if neither the rank nor the value is null.
        """
        value, by = self.input_sql(given), self.input_sql(given, self.input_columns[-1])
        return by, value, f"{by} is not null and {value} is not null"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        by, value = self.ranked_types(name, rows)
        yield name, str(Array(value))
        rows.check_columns(FOLD_ORDER_COLUMNS, self.text_of(name))
        order = (Column(of.removeprefix("_"), Scalar(kind)) for of, kind in FOLD_ORDER_COLUMNS)
        yield (
            _top_column(name),
            str(Array(Struct((Column("by", by), *order, Column("value", value))))),
        )
        yield overflow_column(name), "boolean"
        if not always_fits(_row_size(by, value), self._limit):
            yield cut_column(name), "boolean"

    def declared_text(self, name: str) -> str:
        # Versions that were declared before this column existed do not serve the column.
        return f"{self}, with {overflow_column(name)}"

    def extra_columns(self, name: str) -> tuple[str, ...]:
        return (overflow_column(name),)

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (name, cut_column(name)) if cut_column(name) in types else (name,)

    def overflow_mark(self, name: str) -> str | None:
        return cut_column(name)

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        by, value, ranked = self.ranked_sql(given)
        order = ", ".join(f"{of} as {of.removeprefix('_')}" for of, _ in FOLD_ORDER_COLUMNS)
        row = f"struct({by} as by, {order}, {value} as value)"
        none = f"cast(array() as {types[_top_column(name)]})"
        found = f"max_by({row}, {row}, {self._limit}) filter (where {ranked})"
        yield from self._top_sql(name, types, f"coalesce({found}, {none})", f"count_if({ranked})")

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        top = spark_quote(_top_column(name))
        every = f"sort_array(flatten(collect_list({top})), false)"
        before = f"bool_or({spark_quote(overflow_column(name))}) or "
        yield from self._top_sql(name, types, every, f"sum(size({top}))", before)

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        top = spark_quote(_top_column(name))
        is_cut = f"{spark_quote(overflow_column(name))} and size({top}) < {self._limit}"
        return {name: f"transform({top}, each -> each.value)", cut_column(name): is_cut}

    def _top_sql(
        self, name: str, types: Types, ranked: str, rows: str, before: str = ""
    ) -> Iterator[str]:
        """Yields Spark SQL that keeps the first rows of an array of ranked rows.

        `ranked` is the SQL of the array, and `rows` is the SQL of the number of its rows. `before`
        is the beginning of an SQL condition, up to and including `or`, that is true if rows were
        already dropped; it may be empty.
        """
        array = parse_type(types[_top_column(name)])
        assert isinstance(array, Array), "ranked rows are stored as an array"
        assert isinstance(array.element, Struct), "a ranked row is a struct"
        fields = {field.name: field.type for field in array.element.fields}
        size = _row_size(fields["by"], fields["value"])
        kept = first_values(ranked, self._limit, size)
        yield f"{kept} as {spark_quote(_top_column(name))}"
        # A build that was born before this column existed goes on without the column.
        if overflow_column(name) in types:
            most = str(self._limit) if always_fits(size, self._limit) else f"size({kept})"
            yield f"{before}{rows} > {most} as {spark_quote(overflow_column(name))}"

    @property
    def _limit(self) -> int:
        return int(self.option_value("k"))


def _row_size(by: Type, value: Type) -> int | Size:
    return sum_of_sizes({".by": size_of(by), ".value": size_of(value)}, _ORDER_BYTES)


def _top_column(name: str) -> str:
    """Returns the name of the hidden column that contains the ranked rows of a served column.

    For each row, the hidden column contains the value, the rank, and the row's position in the log.
    """
    return f"_{name}_top"
