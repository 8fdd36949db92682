"""Values of the types that DuckDB makes from texts, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.base.duck import Connection, open_connection
from kappa.declare.values.columns import Scalar, Type
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = rf"{_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_FIRST_DAY = "0001-01-01"


def typed_columns(
    texts: Mapping[str, tuple[Type, pa.Array]], count: int
) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
    """Makes columns from texts by DuckDB, and marks the rows whose values all fit."""
    if not texts:
        return {}, np.ones(count, np.bool_)
    kinds = {f"c{number}": kind for number, (kind, _) in enumerate(texts.values())}
    conditions = [
        f"({name} is null or {condition})"
        for name, kind in kinds.items()
        for condition in _fitting_conditions(kind, name)
    ]
    values = ", ".join(f"{_value_sql(kind, name)} as {name}" for name, kind in kinds.items())
    asked = pa.table([array for _, array in texts.values()], names=list(kinds))
    # A registered name belongs to a cursor, so others may query at the same time.
    with _connection().cursor() as cursor:
        found = (
            cursor.from_arrow(asked)
            .query(
                "texts", f"select {values}, {' and '.join(conditions) or 'true'} as fit from texts"
            )
            .to_arrow_table()
        )
    *arrays, fit = (column.combine_chunks() for column in found.columns)
    return dict(zip(texts, arrays, strict=True)), fit.fill_null(fill_value=False).to_numpy(
        zero_copy_only=False
    )


@cache
def _connection() -> Connection:
    # Spark has a process a core.
    return open_connection({"threads": 1})


def _fitting_conditions(kind: Type, found: str) -> Iterator[str]:
    """Yields the conditions that a value must meet besides its spelling."""
    value = _value_sql(kind, found)
    match kind:
        case Scalar("double" | "float"):
            # 0 and -0 differ in a single one of their spellings.
            yield f"isfinite({value}) and not ({value} = 0 and signbit({value}))"
        case Scalar("date"):
            yield f"regexp_full_match({found}, '{_DATE}') and {value} >= date '{_FIRST_DAY}'"
        case Scalar("timestamp"):
            yield f"regexp_full_match({found}, '{_TIMESTAMP}')"
            yield f"{value} between {FIRST_MICROS} and {LAST_MICROS}"
        case _:
            pass


def _value_sql(kind: Type, found: str) -> str:
    """Returns SQL that makes a value from text; null, and no error, for a misfit."""
    match kind:
        case Scalar("float"):
            return f"try_cast(try_cast({found} as double) as float)"
        case Scalar("timestamp"):
            return f"epoch_us(try_cast({found} as timestamp))"
        case _:
            return f"try_cast({found} as {kind})"
