"""The tables that a query reads, through the views that it names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kappa.serving.query.reader.table_sql import schema_of
from kappa.state.build import Birth

# Pipeline and name of a stored table; a maintained view is one.
Read = tuple[str, str]


def tables_read(
    sql: str,
    births: Mapping[str, Birth],
    names_in: Callable[[str], Iterable[tuple[str, str]]],
) -> frozenset[Read]:
    """Lists the stored tables that a query reads, of the builds that serve, by pipeline.

    A view that is computed when it is read stands for the tables that it reads in turn. A name that
    nothing serves is left out; so is that of a `with`. `names_in` returns the relations that a
    query names, as (schema, name).
    """
    found: set[Read] = set()
    seen: set[Read] = set()
    pending = [(schema, name, tuple(births)) for schema, name in names_in(sql)]
    while pending:
        schema, name, pipelines = pending.pop()
        for pipeline in pipelines:
            if schema.lower() not in {"", "main", schema_of(pipeline).lower()}:
                continue
            birth = births[pipeline]
            tables = {table.name.lower(): table.name for table in birth.tables}
            views = {view.lower(): text for view, text in birth.views.items()}
            if name.lower() in tables:
                found.add((pipeline, tables[name.lower()]))
            elif name.lower() in views and (pipeline, name.lower()) not in seen:
                seen.add((pipeline, name.lower()))
                pending += [
                    (within, each, (pipeline,)) for within, each in names_in(views[name.lower()])
                ]
    return frozenset(found)
