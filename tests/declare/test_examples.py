"""The page of declarations: each entry has an example that runs, and describes its arguments."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from generated import generate, imported
from pasted import blocks

from kappa import Pipeline, Table, pipeline
from kappa.code.project import load_pipelines
from kappa.serving.query.reader.views import unreadable_sql
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRIES = {name: thing for listed in generate.entries().values() for name, thing in listed.items()}
# The topic and the pipeline that the other examples use are the first of the file.
ORDER = ("Topic", "pipeline", *(name for name in ENTRIES if name not in {"Topic", "pipeline"}))
HEAD = """from pathlib import Path

from kappa import *
from kappa.testing import (
    Event, law_of_slices, law_of_views, read_events, some_events, tables_of
)

made = []
"""


@pytest.mark.parametrize("name", ENTRIES)
def test_each_entry_has_an_example_of_itself_and_names_its_arguments(name: str) -> None:
    thing = ENTRIES[name]
    called = {
        node.func.id
        for node in ast.walk(ast.parse(generate.example_of(thing)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    prose = (inspect.getdoc(thing) or "").partition("Example:")[0]

    assert name in called
    assert [
        each for each in inspect.signature(thing).parameters if not re.search(rf"\b{each}\b", prose)
    ] == []


def with_what_is_made(code: str) -> str:
    """Returns an example whose unassigned values, such as a bare table, are appended to `made`."""
    tree = ast.parse(code)
    for node in tree.body:
        if isinstance(node, ast.Expr):
            keep = ast.Attribute(ast.Name("made", ast.Load()), "append", ast.Load())
            node.value = ast.Call(keep, [node.value], [])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.long
@pytest.mark.jvm
def test_every_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    """All examples are in one file; Spark describes each function, and each table is born."""
    from kappa.engine.children.rehearsal import local_pipeline

    (tmp_path / "kappa.toml").touch()
    (tmp_path / "rates.csv").write_text("currency,rate\nEUR,1\n", encoding="utf-8")
    fields = [{"name": "id", "type": "string"}]
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "order.avsc").write_text(
        json.dumps({"type": "record", "name": "Order", "fields": fields}), encoding="utf-8"
    )
    (tmp_path / "schemas" / "order.proto").write_text(
        'syntax = "proto3"; package shop; message Order { string id = 1; }', encoding="utf-8"
    )
    file = tmp_path / "examples.py"
    parts = (with_what_is_made(generate.example_of(ENTRIES[name])) for name in ORDER)
    file.write_text(HEAD + "\n\n".join(parts), encoding="utf-8")
    examples = imported("examples", file)
    made = [each for each in examples.made if isinstance(each, Table)]
    tables = {each.name: each for each in map(apart, made, range(len(made)))}
    assert len(tables) == len(made)
    functions = [each for each in vars(examples).values() if isinstance(each, Pipeline)]
    assert (len(functions), len(examples.made) > 15) == (6, True)

    @pipeline(reads={"visits": examples.VISITS}, writes=[*tables.values()])
    def alone(visits: DataFrame) -> dict[str, DataFrame]:
        # A column that examples of and_ and or_ fold.
        visits = visits.selectExpr("*", "ms > 0 as is_new")
        return {name: visits for name, table in tables.items() if table.is_returned}

    for each in (alone, *functions):
        with local_pipeline(each) as local:
            births = table_births(each, local.outputs)
            assert unreadable_sql(births, {view.name: view.sql for view in each.views}) == {}


def apart(table: Table, number: int) -> Table:
    """Renames the table of a fold's example, because all examples call it pages."""
    if table.name != "pages":
        return table
    return Table(f"pages_{number}", keys=table.keys, fold=table.ordered or table.fold)


VISIT = '{"type": "object", "properties": {"id": {"type": "string"}}}'
READ = """
@pipeline(reads={"visits": shown}, writes=[Table("t")])
def p(visits):
    return {"t": visits}
"""


@pytest.mark.parametrize("number", [0, 1])
def test_a_topic_that_the_page_of_events_shows_can_be_read(tmp_path: Path, number: int) -> None:
    block = [each for each in blocks("docs/reference/events.md") if each.kind == "python"][number]
    for name, text in (
        ("schemas/visit.json", VISIT),
        (
            "pipelines/p.py",
            f"from pathlib import Path\nfrom kappa import *\nshown = {block.text}{READ}",
        ),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="utf-8")

    (declared,) = load_pipelines(tmp_path).values()

    assert [topic.name for topic in declared.topics] == ["visits"]
