"""Writers of tables, and marks of their commits, for tests without a job."""

from __future__ import annotations

from typing import Any

from kappa.engine.write.commit import TableWriter
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

NOWHERE = Offsets()


def make_writer(
    store: Store,
    table: TableBirth,
    build: str = "b",
    *,
    at: Offsets = NOWHERE,
    driver_rows: int = 100,
    **options: Any,
) -> TableWriter:
    """Returns a writer for a table of a build that begins `at` these offsets."""
    origin = origin_mark(build, at)
    return TableWriter(store, build, table, origin=origin, driver_rows=driver_rows, **options)


def make_mark(begin: int, *, build: str = "b", table: str = "t", number: int | None = None) -> Mark:
    """Returns the mark of a slice that contains only offset `begin`.

    The slice's number is `begin` unless `number` is given.
    """
    start, end = (Offsets({"x": {0: offset}}) for offset in (begin, begin + 1))
    return Mark(build, table, 1, begin if number is None else number, start, end)
