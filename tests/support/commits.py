"""Commits of tables that nobody reads, for tests in which a publisher only lists their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from kappa.state.build import table_path
from kappa.state.store import Store


def make_commits(store: Store, build: str, table: str, count: int) -> None:
    """Makes a table of one row, and `count` commits that add no files."""
    path = table_path(store, build, table)
    write_deltalake(path, pa.table({"x": [1]}))
    for number in range(1, count + 1):
        (Path(path) / "_delta_log" / f"{number:020d}.json").write_text('{"commitInfo": {}}\n')
