"""Checks the files that a query is about to read.

These are the files of the tables that the query names, directly or through views. The names come
from DuckDB's parser tree. If the tree does not contain all names, for example because a function
gets the name of a table as a text, the files of all tables are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.relations import Relations, data_files
from kappa.state.file_sums import are_checked, ensure_whole
from kappa.state.store import Store
from kappa.tables.views.syntax_tree import functions_in, tables_in

# Functions that name a table by a value.
_BY_VALUE = frozenset({"query", "query_table"})

# A table, as (pipeline, name).
Named = tuple[str, str]


def tables_read(tree: Callable[[str], Any], sql: str, found: Sequence[Relations]) -> list[Named]:
    """Lists the tables that a query may read, as pairs of pipeline and table name.

    `tree` is a function that returns DuckDB's parser tree of an SQL text. `found` contains the
    tables and views of each pipeline.
    """
    try:
        named = _named_relations(tree(sql))
        reached = {each.pipeline: _reached_names(tree, named, each) for each in found}
    except RecursionError:
        reached = {}
    return [
        (each.pipeline, name)
        for each in found
        for name in each.tables
        if (names := reached.get(each.pipeline)) is None or name.lower() in names
    ]


def are_all_files_checked(store: Store, found: Sequence[Relations]) -> bool:
    """Returns True if all files of these tables were compared with what was written."""
    return are_checked(store, data_files(found))


def ensure_files_whole(
    store: Store,
    snapshot: Snapshot,
    found: Sequence[Relations],
    named: Iterable[Named],
    copies: Callable[[str], str] | None = None,
) -> None:
    """Raises Damaged if a file of the `named` tables differs from the file that was written.

    The error names the file. `named` contains pairs of pipeline and table name. If `copies` is
    given, it maps a file in a bucket to the copy of this file on this host, and the copy is
    checked.
    """
    for pipeline, paths in _paths_named(found, named):
        build = snapshot.serving[pipeline]
        pinned = snapshot.frontiers[build]
        ensure_whole(store, pinned.build, paths, copies=copies, pinned=pinned)


def files_named(found: Sequence[Relations], named: Iterable[Named]) -> list[str]:
    """Lists the files of the tables in `named`, which are pairs of pipeline and table name."""
    return [path for _, paths in _paths_named(found, named) for path in paths]


def _paths_named(
    found: Sequence[Relations], named: Iterable[Named]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    by_pipeline = {each.pipeline: each for each in found}
    for pipeline, name in named:
        relations = by_pipeline.get(pipeline)
        table = None if relations is None else relations.tables.get(name)
        if table is not None:
            yield pipeline, table.paths


def _reached_names(
    tree: Callable[[str], Any], names: frozenset[str] | None, relations: Relations
) -> frozenset[str] | None:
    """Returns the tables and views that a query names, directly or through views.

    `names` are the names in the query itself. In the argument and in the result, None means that
    any name may be used.
    """
    if names is None:
        return None
    views = {name.lower(): sql for name, sql in relations.views.items()}
    reached, new = set(names), set(names)
    while new:
        found = [_named_relations(tree(views[name])) for name in new if name in views]
        if any(each is None for each in found):
            return None
        new = {name for each in found if each is not None for name in each} - reached
        reached |= new
    return frozenset(reached)


def _named_relations(tree: Any) -> frozenset[str] | None:
    """Returns the names of the relations in a parser tree, in lower case.

    Returns None if the tree is not that of a query, or if a function in the tree gets the name of a
    table as a text.
    """
    if (
        not isinstance(tree, dict)
        or tree.get("error")
        or not _BY_VALUE.isdisjoint(map(str.lower, functions_in(tree)))
    ):
        return None
    return frozenset(name.lower() for _, name in tables_in(tree))
