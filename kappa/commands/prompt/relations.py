r"""Tables and views for `\d`: all of them in a list, or one in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kappa.base.errors import UsageError, did_you_mean
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

    Raises UsageError with the nearest name if there is none.
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
    table: ServedTable, snapshot: Snapshot, names_in: Callable[[str], frozenset[str]]
) -> str:
    """Renders a table in full: columns, types and folds, and the build that writes it."""
    birth = snapshot.births[table.build]
    view = table_view(table, birth, (), names_in, whole="")
    columns = Listing(
        ("column", "type", "fold"),
        tuple((each.name, each.kind, each.role) for each in view.columns),
    )
    topics = sorted(snapshot.frontiers[table.build].offsets.next)
    lines = [
        *([f"cannot be read: {table.broken}"] if table.broken else []),
        *([f"keys: {', '.join(view.keys)}"] if view.keys else []),
        *(f"check: {check}" for check in view.checks),
        *([f"read by: {', '.join(view.views)}"] if view.views else []),
        f"written by: pipeline {table.pipeline}, build {table.build} (version {birth.version}), "
        f"from {', '.join(topics) or 'no topic'}"
        if table.kind != VIEW
        else f"computed at reading, as pipeline {table.pipeline} declares, build {table.build}",
        *([f"query:\n{view.sql}"] if view.sql is not None else []),
    ]
    heading = f"{table.kind} {table.name}"
    return render_listing(Form.TABLE, columns, heading=heading) + printable_text(
        "".join(f"{line}\n" for line in lines)
    )
