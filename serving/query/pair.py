"""Two builds side by side.

The tables of the first build are in schema `before`, those of the second in schema `after`. The
reader has exactly the served rows of both builds, at the versions of two pinned frontiers. The
reader also has the hidden columns with the error ranges of approximate values, and no views. Keys
that a comparison sets aside are stored beside the tables (law 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kappa.base.sql import quoted
from kappa.serving.query.reader.reader import Limits, Reader, open_reader
from kappa.serving.query.reader.relations import put_tables
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.store import Store
from kappa.state.table import TableBirth

BEFORE = "before"
AFTER = "after"
# The keys in one statement. The table of all keys is in DuckDB, which spills.
_BATCH = 20_000


def connect_pair(
    store: Store,
    before: tuple[Birth, Frontier],
    after: tuple[Birth, Frontier],
    *,
    limits: Limits | None,
    after_store: Store | None = None,
) -> Reader:
    """Opens a reader of two builds; the caller keeps both builds pinned meanwhile.

    `after_store` is the store of the second build, if that build is in another store.
    """
    reader = open_reader(limits, served=True)
    try:
        put_tables(reader, BEFORE, *before, store, columns=_compared)
        put_tables(reader, AFTER, *after, after_store or store, columns=_compared)
    except BaseException:
        reader.close()
        raise
    return reader


def _compared(table: TableBirth) -> tuple[tuple[str, str], ...]:
    return table.compared


def put_keys(reader: Reader, name: str, keys: Iterable[str]) -> int:
    """Makes a table of distinct keys, and returns how many keys the table has.

    The table replaces an earlier table of the same name. Its only column is `key`.
    """
    staged = quoted(f"{name}_all")
    reader.run_command(f"create or replace temp table {staged} (key varchar)")
    keys = iter(keys)
    # A key that is written all the time repeats; most of that ends in this set.
    while batch := set(islice(keys, _BATCH)):
        reader.run_command(f"insert into {staged} select unnest(?::varchar[])", [sorted(batch)])
    reader.run_command(
        f"create or replace temp table {quoted(name)} as select distinct key from {staged}"
    )
    reader.run_command(f"drop table {staged}")
    return int(reader.rows(f"select count(*) from {quoted(name)}").rows[0][0])
