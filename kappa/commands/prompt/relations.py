r"""Tables and views for `\d`: a list of all, or a full description of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kappa.base.errors import UsageError, did_you_mean
from kappa.replay.page.described_table import (
    DescribedTable,
    boards_naming,
    described_listing,
    described_text,
)
from kappa.replay.page.table import table_view
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.render import Form, Listing, printable_text, render_listing
from kappa.serving.query.tables import ServedTable

VIEW = "view"


def relations_listing(tables: Iterable[ServedTable]) -> Listing:
    """Makes a row for each table and view."""
    rows = tuple(
        (
            each.name,
            each.kind,
            each.pipeline,
            f"BROKEN: {each.broken}"
            if each.broken
            else ", ".join(name for name, _ in each.columns),
        )
        for each in tables
    )
    return Listing(("table", "kind", "pipeline", "columns"), rows)


def relations_named(name: str, tables: Iterable[ServedTable]) -> list[ServedTable]:
    """Lists the tables and views of a name, which a person may write with its schema.

    Raises UsageError with the nearest name if no table or view has the name.
    """
    tables = tuple(tables)
    asked = name.replace('"', "").lower()
    found = [
        each
        for each in tables
        if asked in {each.name.lower(), f"{schema_of(each.pipeline)}.{each.name}".lower()}
    ]
    if not found:
        names = [each.name for each in tables]
        raise UsageError(
            f"there is no table {name}",
            hint=did_you_mean(asked, names) or r"\d lists all tables and views",
        )
    return found


def relation_text(
    table: ServedTable,
    snapshot: Snapshot,
    project: Path,
    names_in: Callable[[str], frozenset[str]],
) -> str:
    """Renders a table in full, as `kappa tables TABLE` does, without counting rows and files."""
    birth = snapshot.births[table.build]
    found = DescribedTable(
        table_view(table, birth, (), names_in, whole="", costs={}),
        None,
        birth,
        boards_naming(project, table.name, names_in),
    )
    return render_listing(
        Form.TABLE, described_listing(found), heading=printable_text(described_text(found))
    )
