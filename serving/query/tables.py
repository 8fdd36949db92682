"""The tables and views that are served, or were: whose they are, what is in them, and where other tools find the same rows.

A version of a Delta table does not change, so path and version (in Spark: `spark.read.format("delta")` with the option
`versionAsOf`) name what `kappa query` sees, with hidden columns and deleted rows on top, and without what waits beside a large
table in `recent` ones, to be folded into it (kappa/engine/write/recent.py). Read next: query.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kappa.state.build import recent_names, table_path
from kappa.state.store import Store
from kappa.values.columns import quoted
from serving.pin.at_log import Past
from serving.pin.catalog import Snapshot
from serving.query.query import ask
from serving.query.reader import Reader
from serving.query.render import Listing
from serving.query.table_sql import schema_of


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A served table or view, columns as (name, DuckDB's type). A view has no version and no path: it is computed at reading."""

    name: str
    pipeline: str
    build: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    version: int | None = None
    path: str | None = None
    recent: tuple[tuple[int, str], ...] = ()


def served_tables(
    store: Store, *, when: Past | None = None, lease_seconds: float = 60.0
) -> tuple[ServedTable, ...]:
    """All that is served, or was at a moment of the past, of one snapshot, by pipeline and in the order of its declaration, views last."""
    return ask(
        store,
        lambda reader, snapshot: tuple(_found(reader, snapshot, store)),
        when=when,
        lease_seconds=lease_seconds,
    )


def _found(reader: Reader, snapshot: Snapshot, store: Store) -> Iterator[ServedTable]:
    for pipeline, build in sorted(snapshot.serving.items()):
        birth, versions = snapshot.births[build], snapshot.frontiers[build].versions
        for table in birth.tables:
            recent = tuple(
                (versions[name], table_path(store, build, name))
                for name in recent_names(table.name)
                if name in versions
            )
            yield ServedTable(
                table.name,
                pipeline,
                build,
                *_counted(reader, pipeline, table.name),
                versions[table.name],
                table_path(store, build, table.name),
                recent,
            )
        for view in birth.views:
            yield ServedTable(view, pipeline, build, *_counted(reader, pipeline, view))


def _counted(reader: Reader, pipeline: str, name: str) -> tuple[int, tuple[tuple[str, str], ...]]:
    whole = f"{quoted(schema_of(pipeline))}.{quoted(name)}"
    described = reader.rows(f"from {whole} limit 0")
    return int(reader.rows(f"select count(*) from {whole}").rows[0][0]), tuple(
        zip(described.columns, described.types, strict=True)
    )


def tables_listing(found: Iterable[ServedTable], *, columns_as_text: bool = False) -> Listing:
    """A row per table and view; versions and paths are for machines."""
    rows = (
        (
            table.name,
            table.pipeline,
            table.build,
            table.rows,
            ", ".join(f"{name} {kind.lower()}" for name, kind in table.columns)
            if columns_as_text
            else [{"name": name, "type": kind} for name, kind in table.columns],
            table.version,
            table.path,
            [{"version": version, "path": path} for version, path in table.recent],
        )
        for table in found
    )
    return Listing(
        ("table", "pipeline", "build", "rows", "columns", "version", "path", "recent"),
        tuple(rows),
        wide=frozenset({"version", "path", "recent"}),
    )
