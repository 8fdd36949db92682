"""Two builds side by side: a reader with the tables of one as schema `before`, and of the other as schema `after`.

Exactly the served rows of both, at the versions of two pinned frontiers, with the hidden columns that tell how far apart
approximate values may be; views are not there. Keys that are to be set aside
are put beside them (law 5). Read next: replay/verify/diff.py, which compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from kappa.base.sql import quoted
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.store import Store
from serving.query.opened import open_reader
from serving.query.reader import Limits, Reader
from serving.query.relations import put_tables

BEFORE = "before"
AFTER = "after"
# What one statement takes; the rest of a topic's keys lies in DuckDB, which spills.
_BATCH = 20_000


def connect_pair(
    store: Store,
    before: tuple[Birth, Frontier],
    after: tuple[Birth, Frontier],
    *,
    limits: Limits | None,
    after_store: Store | None = None,
) -> Reader:
    """A reader of two builds, both of which are to be kept pinned meanwhile; `after_store` is where the second lies, if it is another place."""
    reader = open_reader(limits, served=True)
    try:
        put_tables(reader, BEFORE, *_at(before), store, compared=True)
        put_tables(reader, AFTER, *_at(after), after_store or store, compared=True)
    except BaseException:
        reader.close()
        raise
    return reader


def _at(side: tuple[Birth, Frontier]) -> tuple[Birth, Mapping[str, int]]:
    birth, frontier = side
    return birth, frontier.versions


def put_keys(reader: Reader, name: str, keys: Iterable[str]) -> int:
    """Makes a table of that name, in place of any before, with one column, `key`; gives how many distinct keys it has."""
    staged = quoted(f"{name}_all")
    reader.command(f"create or replace temp table {staged} (key varchar)")
    keys = iter(keys)
    # A key that is written all the time comes again and again; most of that ends here.
    while batch := set(islice(keys, _BATCH)):
        reader.command(f"insert into {staged} select unnest(?::varchar[])", [sorted(batch)])
    reader.command(
        f"create or replace temp table {quoted(name)} as select distinct key from {staged}"
    )
    reader.command(f"drop table {staged}")
    return int(reader.rows(f"select count(*) from {quoted(name)}").rows[0][0])
