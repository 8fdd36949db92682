"""Relations for a reader of some tables: those that it may name, and those that its views need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kappa.serving.access.roles import ALL_TABLES, TableGrant
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.relations import (
    Relations,
    TableFiles,
    put_relations,
    readable_relations,
)
from kappa.serving.query.reader.views import tables_named

TABLES = ("t0", "t1", "t2", "rejects")
VIEWS = ("v0", "v1", "v2", "v3")


@st.composite
def pipelines(draw: st.DrawFn) -> Relations:
    """Draws a pipeline whose views read tables and earlier views, declared in any order."""
    views = {}
    for place, view in enumerate(VIEWS):
        there = (*TABLES[:3], *VIEWS[:place])
        read = draw(st.lists(st.sampled_from(there), min_size=1, max_size=3))
        # A name of `with` hides a table, and a table may be written in capitals.
        texts = [draw(st.sampled_from([f"from {each}", f"from {each.upper()}"])) for each in read]
        views[view] = " union all ".join(f"select n from ({each})" for each in texts)
    order = draw(st.permutations(list(views)))
    tables = {name: TableFiles("select 1 as n", ()) for name in TABLES}
    return Relations("web", tables, {name: views[name] for name in order})


def reached(name: str, relations: Relations) -> set[str]:
    """Returns a relation's name and all names that it reads, found in the texts alone."""
    if name not in relations.views:
        return {name}
    words = relations.views[name].lower().replace(")", " ").split()
    reads = {each for each in words if each in {*TABLES, *VIEWS}}
    return {name}.union(*(reached(each, relations) for each in reads))


@given(pipelines(), st.sets(st.sampled_from([*TABLES[:3], *VIEWS, "web.rejects", "other"])))
def test_a_reader_has_its_tables_and_what_they_need(relations: Relations, names: set[str]) -> None:
    """A reader may name what it was granted. Other relations that its views read are hidden."""
    granted = {name.removeprefix("web.") for name in names} - {"other"}
    (found,) = readable_relations([relations], TableGrant(frozenset(names)), tables_named) or (
        Relations("web", {}, {}),
    )

    assert {*found.named} == granted
    there = {*found.tables, *found.views}
    assert there == set().union(*(reached(each, relations) for each in granted))
    assert found.hidden == there - granted
    assert {*found.public_names} == granted - {"rejects"}
    if there:
        with open_reader(None, served=True) as reader:
            assert put_relations(reader, [found]) == ()


def test_a_reader_of_all_has_all() -> None:
    """A reader of all tables has all relations of the snapshot, unchanged."""
    relations = Relations("web", {"t0": TableFiles("select 1 as n", ())}, {"v": "from t0"})

    assert readable_relations([relations], ALL_TABLES, tables_named) == (relations,)
    assert readable_relations([relations], TableGrant(frozenset({"x"})), tables_named) == ()
