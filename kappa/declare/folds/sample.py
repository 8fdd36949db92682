"""The fold `sample`."""

from __future__ import annotations

from collections.abc import Sequence

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Option, Types, whole_option
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.top import TopK
from kappa.declare.values.columns import Column, Decimal, Scalar, Struct, Type

# The place of a record: the topic, the partition and the offset, without the log time.
_PLACE = tuple(name for name, _ in FOLD_ORDER_COLUMNS[1:])
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
# Separates names of columns, in birth certificates too.
_SEPARATOR = ", "


def sample(
    columns: str | Sequence[str], k: int = 100, *, weight: str | None = None
) -> RandomSample:
    """Keeps a random sample of `k` rows, without replacement.

    The sample is exact: each replay selects the same rows. Each row is selected with the same
    probability: a hash is computed from the row's place (topic, partition, offset) and its values,
    and the rows with the least hashes are kept. If `weight` names a column, a row of weight 2 has
    the same chance as two rows of weight 1 (Efraimidis and Spirakis, 2006). Rows whose weight is
    null, NaN, zero or negative are never kept.

    `columns` names one column or several columns. If `columns` names one column, the result is an
    array of the column's values, without nulls. Otherwise, the result is an array of structs. The
    array is in the order in which the rows were drawn, so its first n values are a sample of n
    rows. If the sampled values exceed 16 MiB, only as many values as fit into 16 MiB are kept. The
    boolean column `<name>_overflow` is true if there were more rows than are kept.

    Example:
        Table("pages", keys=("page",), fold={"visits": sample(["visitor", "ms"], 20)})
    """
    options: tuple[tuple[str, Option], ...] = (whole_option("sample", "k", k, 1, 10_000),)
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or not all(isinstance(name, str) and _SEPARATOR not in name for name in names):
        raise DeclarationError(
            f"{Source.of_caller(1)}: sample has columns={columns!r}",
            hint='give the name of a column, or a list of names: sample(["visitor", "ms"], 20)',
        )
    return RandomSample(
        _SEPARATOR.join(names), options if weight is None else (*options, ("weight", weight))
    )


class RandomSample(TopK):
    """The fold that stores the values of the rows with the greatest random ranks.

    The random rank of a row is computed from the row's position in the log, its values and its
    weight.
    """

    kind = "sample"

    @property
    def given_columns(self) -> tuple[object, ...]:
        return self.input_columns

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Returns the sampled columns, followed by the column of weights if one is declared."""
        weight = dict(self.options).get("weight")
        return (*self._value_columns, *(() if weight is None else (str(weight),)))

    @property
    def _value_columns(self) -> tuple[str, ...]:
        return tuple(str(self.column).split(_SEPARATOR))

    def ranked_types(self, name: str, rows: ReturnedColumns) -> tuple[Type, Type]:
        types = [rows.type_of(column, self.text_of(name)) for column in self.input_columns]
        columns = self._value_columns
        if (
            len(columns) < len(types)
            and str(types[-1]) not in _NUMBERS
            and not isinstance(types[-1], Decimal)
        ):
            raise rows.table_error(
                f"folds {self.text_of(name)} by a weight of the type {types[-1]}",
                hint=f'cast the weight in the function: F.col("{self.input_columns[-1]}")'
                '.cast("double")',
            )
        rank = Scalar("bigint" if len(columns) == len(types) else "double")
        if len(columns) == 1:
            return rank, types[0]
        return rank, Struct(tuple(map(Column, columns, types[: len(columns)])))

    def ranked_sql(self, given: Types) -> tuple[str, str, str]:
        values = [self.input_sql(given, column) for column in self._value_columns]
        hashed = f"xxhash64({', '.join((*_PLACE, *values))})"
        drawn = f"{values[0]} is not null" if len(values) == 1 else "true"
        value = values[0]
        if len(values) > 1:
            names = map(spark_quote, self._value_columns)
            value = f"struct({', '.join(map('{} as {}'.format, values, names))})"
        if len(self.input_columns) == len(values):
            # The least hash has the greatest rank.
            return f"~{hashed}", value, drawn
        weight = f"cast({self.input_sql(given, self.input_columns[-1])} as double)"
        # A number of 53 bits above 0, whose logarithm would be null, and at most 1. Spark computes
        # logarithms by Java's StrictMath, which gives the same bits on every machine.
        uniform = f"(shiftrightunsigned({hashed}, 11) + 0.5D) * {2.0**-53!r}D"
        return f"ln({uniform}) / {weight}", value, f"{drawn} and {weight} > 0"
