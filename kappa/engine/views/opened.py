"""The tables of a build, opened or made, with the rows that exist before any slice.

First rows are the rows of files, and the rows of maintained views over files. First rows are a
table's version 0, which the build's first frontier names. So every frontier has the first rows,
whatever the slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from kappa.base.duck import DuckError
from kappa.declare.pipeline import Pipeline
from kappa.declare.seed import SeedFile, read_seed
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.views.touched import ViewSource
from kappa.engine.write.commit import Merging, TableWriter
from kappa.state.build import Birth
from kappa.state.files.duckdb_access import open_exact
from kappa.state.mark import origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.versions import FileLists
from kappa.tables.views.changes import changes_sql, stored_columns, view_error
from kappa.tables.views.served import read_sql
from kappa.tables.views.ways import ways_of


def open_tables(
    store: Store, birth: Birth, pipeline: Pipeline, *, driver_rows: int, merging: Merging
) -> tuple[TableWriter, ...]:
    """Opens the tables of a build, and makes missing tables; see `TableWriter`.

    Raises Broken if a maintained view over rows of files cannot be computed.
    """
    files = {table.name: table.file for table in pipeline.tables if table.file is not None}
    origin = origin_mark(birth.build, birth.origin_offsets)
    writers: dict[str, TableWriter] = {}
    filled = set(files)
    for table in birth.tables:
        first = None
        if table.name in files:
            first = partial(seed_rows, files[table.name], table)
        elif filled.intersection(table.reads):
            filled.add(table.name)
            first = partial(_first_rows, table, birth, writers)
        writers[table.name] = TableWriter(
            store,
            birth.build,
            table,
            origin=origin,
            first=first,
            driver_rows=driver_rows,
            merging=merging,
        )
    return tuple(writers.values())


def seed_rows(file: SeedFile, table: TableBirth) -> pa.Table:
    """Returns the rows of a file as stored in the table; raises as `read_seed` does."""
    schema = arrow_schema(table.columns)
    _, values = read_seed(file)
    return pa.table(
        [pa.array(found, of.type) for found, of in zip(values, schema, strict=True)], schema
    )


def _first_rows(view: TableBirth, birth: Birth, writers: Mapping[str, TableWriter]) -> pa.Table:
    """Computes the first rows of a maintained view from the view's newly made sources."""
    changes = changes_sql(
        view,
        ways_of(birth.tables)[view.name].whole,
        {name: ViewSource(writers[name], FileLists()).sql() for name in view.reads},
        read_sql(view, (), stored_columns(view), clock=None),
        birth.origin_offsets.distance(Offsets()),
    )
    schema = arrow_schema(view.columns)
    try:
        with open_exact() as duck:
            return duck.execute(changes).to_arrow_table().select(schema.names).cast(schema)
    except DuckError as error:
        raise view_error(view.name, str(error)) from error
