"""`kappa.Project` gives the same answers as the commands, in each form, and as HTML."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import hostile
import pyarrow as pa
import pytest
from house import HOUSE
from page_world import EVIL, World

import kappa
from kappa.base.errors import Conflict, KappaError, SettingsError, UsageError
from kappa.commands.app import run_command
from kappa.project.report import Report

pytestmark = pytest.mark.slow

CODE = f'''"""Visits of a site. {EVIL}"""
from kappa import *


def web(visits):
    """Counts pages."""
'''


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Returns one world for all tests.

    A test that lets a table grow adds rows with many hits.
    """
    made = World(tmp_path_factory.mktemp("project"))
    made.build("web-1", evil=EVIL, code=CODE)
    made.goes_live("web-1", 1, ago=3600)
    made.build("web-2", hits=2)
    made.goes_live("web-2", 2, "web-1", reasons=("function web",), ago=60)
    return made


@pytest.fixture
def project(world: World) -> kappa.Project:
    return kappa.Project.open(world.here.settings.project)


def printed(capsys: pytest.CaptureFixture[str], world: World, *words: str) -> object:
    folder = str(world.here.settings.project)
    assert run_command(["--project", folder, *words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_importing_kappa_imports_no_engine() -> None:
    """`import kappa` and `kappa.Project.open` import neither Spark nor DuckDB nor the SDK."""
    code = (
        "import sys, kappa; kappa.Project.open('.'); "
        "print([each for each in ('pyspark', 'duckdb', 'pyarrow', 'confluent_kafka', 'httpx2', "
        "'mcp') if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=HOUSE, capture_output=True, text=True, check=True
    )

    assert found.stdout == "[]\n"


def test_no_project_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no kappa.toml"):
        kappa.Project.open(tmp_path)


def test_an_answer_has_each_form(project: kappa.Project) -> None:
    """Each form has the rows of the same run, even if it is requested later."""
    sql = "select hits, hits as hits, 5::hugeint as huge from page_hits order by hits limit 2"

    found = project.query(sql)

    assert found.fetchall() == [(2, 2, 5), (4, 4, 5)]
    assert found.columns == ("hits", "hits_1", "huge")
    assert found.types == ("BIGINT", "BIGINT", "HUGEINT")
    assert found.arrow().column("huge").type == pa.decimal128(38, 0)
    assert found.df().to_dict("list")["hits_1"] == [2, 4]
    assert (found.generation, len(found), found.head["builds"]["web"]["build"]) == (2, 2, "web-2")


def test_an_answer_is_of_a_single_run(project: kappa.Project) -> None:
    found = project.query("select random() as r from range(3)")

    assert [row[0] for row in found.rows] == found.arrow().column("r").to_pylist()


def test_a_struct_without_names_is_no_arrow(project: kappa.Project) -> None:
    found = project.query("select row(1, 2) as pair")

    assert found.fetchall() == [((1, 2),)]
    with pytest.raises(UsageError, match="struct without names"):
        found.arrow()


def test_queries_of_a_pin_read_one_snapshot(world: World, project: kappa.Project) -> None:
    with project.pin() as pinned:
        before = pinned.query("select count(*) from page_hits").fetchall()
        world.grows("web-2", hits=1_000)

        assert pinned.query("select count(*) from page_hits").fetchall() == before
    ((count,),) = before
    assert project.query("select count(*) from page_hits").fetchall() == [(count + 1,)]


def test_the_past_is_asked_by_one_moment(project: kappa.Project) -> None:
    found = project.query("select max(hits) from page_hits", at_generation=1)

    assert (found.fetchall(), found.generation) == ([(40,)], 1)
    with pytest.raises(UsageError, match="at and at_generation"):
        project.query("select 1", at="2026-01-01T00:00Z", at_generation=1)


@pytest.mark.parametrize(
    ("words", "look"),
    [
        (("query", "select page from page_hits order by page"), None),
        (("tables",), lambda each: each.tables().rows),
        (("tables", "page_hits"), lambda each: each.table("page_hits").document),
        (("history",), lambda each: each.history().rows),
        (("rejects",), lambda each: each.rejects("web", build="web-1").rows),
    ],
)
def test_commands_print_what_the_object_gives(
    capsys: pytest.CaptureFixture[str],
    world: World,
    project: kappa.Project,
    words: tuple[str, ...],
    look,
) -> None:
    from kappa.serving.query.render import to_json

    if words[0] == "rejects":
        words = ("rejects", "list", "web", "--build", "web-1")
    found = project.query(words[1]).document if look is None else look(project)

    assert printed(capsys, world, *words) == json.loads(to_json(found))


def test_hostile_arguments_are_refused_in_words(project: kappa.Project) -> None:
    """Any argument gets an answer or one of our errors."""
    calls: list[Callable[[Any], object]] = [
        project.query,
        lambda each: project.query(f"select {each}"),
        lambda each: project.query("select 1", at=each),
        lambda each: project.query("select 1", at_event_time=each),
        lambda each: project.query("select 1", at_offsets=each),
        lambda each: project.query("select 1", after=each, timeout=0),
        project.table,
        lambda each: list(project.changes(each, follow=False)),
        lambda each: list(project.changes("page_hits", since=each, follow=False)),
        lambda each: list(project.changes("page_hits", where=each, follow=False)),
        lambda each: list(project.changes("page_hits", columns=[each], follow=False)),
        project.history,
        project.rejects,
        lambda each: project.rejects(reason=each),
        lambda each: project.rejects(build=each),
        project.diff,
        lambda each: project.diff("web", each),
        lambda each: project.diff("web", tables=[each]),
        lambda each: project.produce(each, [{"a": 1}]),
        project.read_plan,
    ]
    numbers: list[Callable[[Any], object]] = [
        lambda each: project.query("select 1", at_generation=each),
        lambda each: project.history(limit=each),
        lambda each: project.rejects(limit=each),
        lambda each: project.diff("web", sample=each),
    ]
    for call, each in (*product(calls, hostile.TEXTS), *product(numbers, hostile.NUMBERS)):
        with suppress(KappaError):
            repr(call(each))


def test_a_project_answers_threads_at_once(project: kappa.Project) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda n: project.query(f"select {n} as n").fetchall(), range(64))

        assert [rows for (rows,) in found] == [(n,) for n in range(64)]


def test_changes_go_on_from_a_cursor(world: World, project: kappa.Project) -> None:
    (first,) = [each.head.cursor for each in project.changes("page_hits", follow=False)]
    world.grows("web-2", hits=7_000)
    found = []
    for each in project.changes("page_hits", since=first, columns=["hits"], follow=False):
        found += [(change.op, change.after) for change in each.rows()]

    assert [(op, row["hits"]) for op, row in found if row is not None] == [("insert", 7_000)]


def test_a_notebook_shows_data_escaped(project: kappa.Project) -> None:
    """Rows may come from strangers, so no value of a row may become an element of the page."""
    shown = [
        project.query(f"select '{EVIL.replace(chr(39), chr(39) * 2)}' as \"<b>\""),
        project.rejects(build="web-1"),
        project.tables(),
        project.status(),
        project.history(),
        project.diff("web"),
    ]

    for each in shown:
        html = each._repr_html_()
        assert "<script" not in html.replace("&lt;script", "")
        assert "<b>" not in html
    assert "<table>" in shown[0]._repr_html_()
    assert "<pre>" in shown[-1]._repr_html_()


def test_a_long_report_says_how_many_rows(project: kappa.Project) -> None:
    html = project.query("select * from range(250)")._repr_html_()

    assert "100 of 250 rows" in html
    assert html.count("<tr>") == 101


def test_a_report_is_its_rows(project: kappa.Project) -> None:
    found = project.status()

    assert isinstance(found, Report)
    assert [each["build"] for each in found] == ["web-2", "web-1"]
    assert len(found) == 2
    assert "web-2" in str(found)


def test_a_request_needs_a_running_platform(world: World, project: kappa.Project) -> None:
    from kappa.base.errors import Unreachable

    for ask in (project.promote, project.undo, project.stage, project.deploy):
        with pytest.raises(Unreachable, match="not up"):
            ask()
    world.be_up()
    with pytest.raises((UsageError, Conflict)):
        project.promote("web")


def test_produce_names_an_undeclared_topic(project: kappa.Project) -> None:
    with pytest.raises(UsageError, match="declares no topic nothing"):
        project.produce("nothing", [{"a": 1}])
