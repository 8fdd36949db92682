"""Parquet files that are read as a single dataset, in this process, by Arrow or DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted, text
from kappa.declare.values.columns import HEADERS, Array, Scalar, Struct, Type, parse_type
from kappa.state.files.address import arrow_source

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_SPELLINGS = {
    "string": "varchar",
    "binary": "blob",
    HEADERS: 'struct("key" varchar, "value" blob)[]',
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def parquet_dataset(addresses: Sequence[str]) -> ds.Dataset:
    """Opens Parquet files as one dataset, by path or URL. `addresses` must not be empty."""
    # The module imports pandas, which takes 0.4 s: a catch-up of few records does without.
    import pyarrow.dataset  # noqa: PLC0415
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415  # beside it

    form = pyarrow.dataset.ParquetFileFormat()
    parts = [form.make_fragment(arrow_source(each), LocalFileSystem()) for each in addresses]
    return pyarrow.dataset.FileSystemDataset(parts, parts[0].physical_schema, form)


def parquet_sql(columns: Sequence[tuple[str, str]], paths: Iterable[str], where: str = "") -> str:
    """Returns the DuckDB query for the rows of Parquet files, in the columns' declared types.

    `paths` are the paths or URLs of the files. `where` is a condition that begins with the word
    `where`, or is empty. Every column is cast to its type: Delta's writers store times in two ways,
    and without the casts, the first file would decide the type of all files.
    """
    selected = casts_sql(columns)
    listed = ", ".join(text(literal(path)) for path in paths)
    if not listed:
        nothing = ", ".join(f"null as {quoted(name)}" for name, _ in columns)
        return f"select {selected} from (select {nothing}) where false"
    return f"select {selected} from read_parquet([{listed}], hive_partitioning = false){where}"


def cast_sql(name: str, kind: str) -> str:
    """Returns the DuckDB expression that casts the column `name` to the Spark type `kind`."""
    return f"cast({quoted(name)} as {duck_type(kind)}) as {quoted(name)}"


def casts_sql(columns: Iterable[tuple[str, str]]) -> str:
    """Returns the DuckDB expressions that cast columns to their types, joined by commas.

    `columns` are pairs of name and Spark type.
    """
    return ", ".join(cast_sql(name, kind) for name, kind in columns)


def literal(path: str) -> str:
    """Returns a path with special characters escaped, so that DuckDB does not read it as a pattern.

    Source: https://duckdb.org/docs/data/multiple_files/overview#list-parameter.
    """
    return re.sub(r"([\[*?])", r"[\1]", path)


def duck_type(kind: str) -> str:
    """Returns the DuckDB name of a Kappa type."""
    try:
        return _spelled_type(parse_type(kind))
    except DeclarationError:
        # Events have no columns of bytes or headers, but rejects do.
        return _SPELLINGS.get(kind, kind)


def _spelled_type(kind: Type) -> str:
    match kind:
        case Scalar(name):
            return _SPELLINGS.get(name, name)
        case Array(element):
            return f"{_spelled_type(element)}[]"
        case Struct(fields):
            inside = (f"{quoted(field.name)} {_spelled_type(field.type)}" for field in fields)
            return f"struct({', '.join(inside)})"
        case _:
            return str(kind)
