"""Laws of the code diff: it shows everything that decides rows, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_trees import finding

from kappa import Table, Topic, View, count, pipeline, sum_
from kappa.code.code_snapshot import snapshot_files
from kappa.code.fingerprint import compute_fingerprint, declaration_lines
from kappa.code.project import load_project
from kappa.replay.rollout.plan.code_diff import CodeSide, PartDiff, part_diffs

FLIGHTS = '''
"""Flights."""
import math
from pipelines.helpers import clean

LIMIT = 15  # minutes


def on_time(rows):
    """Late or not."""
    # Nulls are late.
    rows = clean(rows)
    return rows.where(rows.delay < LIMIT)


def flights(hits):
    return {"delays": on_time(hits).where(math.floor(2.5) > 1)}
'''
WITH_RATES = """
from kappa import Table, Topic, pipeline
VISITS = Topic("visits", event="id string")
RATES = Table("rates", file="rates.csv", columns="a int, b string")
@pipeline(reads={"visits": VISITS}, writes=[Table("visits"), RATES])
def web(visits):
    return {"visits": visits}
"""
HELPERS = "def clean(rows):\n    return rows\n"


def side(text: str = FLIGHTS, *, helpers: str = HELPERS, **declared: object) -> CodeSide:
    made = {
        "topic": Topic("hits", event="id string, n int"),
        "tables": [Table("delays", keys=("id",), fold={"n": count()}, checks=["n > 0"])],
        "views": [],
        **declared,
    }

    # `made` has values of mixed types on purpose.
    @pipeline(reads={"hits": made["topic"]}, writes=[*made["tables"], *made["views"]])  # type: ignore[dict-item,misc]
    def flights(hits: object) -> dict[str, object]:
        return {"delays": hits}

    tree = {"pipelines/flights.py": text, "pipelines/helpers.py": helpers}
    parts = compute_fingerprint(flights, "pipelines.flights", "flights", finding(tree)).parts
    files = {path: code.encode() for path, code in tree.items()}
    return CodeSide(parts, files, declaration_lines(flights))


def edited(old: str, new: str) -> CodeSide:
    assert old in FLIGHTS
    return side(FLIGHTS.replace(old, new))


def changes(diff: PartDiff) -> list[str]:
    return [line for line in diff.lines if line[0] in "+-"]


def changes_by_part(new: CodeSide) -> dict[str, list[str]]:
    """Returns the changed lines of each part, compared with `side()`."""
    return {diff.part: changes(diff) for diff in part_diffs(side(), new)}


def only(old: CodeSide, new: CodeSide) -> PartDiff:
    (diff,) = part_diffs(old, new)
    return diff


def test_a_changed_constant_is_one_line_of_each() -> None:
    diff = only(side(), edited("LIMIT = 15  # minutes", "LIMIT = 30"))

    assert diff.part == "value pipelines/flights.py:LIMIT"
    assert diff.what == "value LIMIT in pipelines/flights.py"
    assert changes(diff) == ["-LIMIT = 15", "+LIMIT = 30"]


def test_prose_beside_a_real_change_is_not_shown() -> None:
    prose = FLIGHTS.replace("Late or not.", "Punctual.")
    prose = prose.replace("# Nulls are late.", "# Nulls\n\n    # are late!")
    text = prose.replace("rows.delay < LIMIT", "rows . delay <= LIMIT")

    assert changes(only(side(), side(text))) == [
        "-    return rows.where(rows.delay < LIMIT)",
        "+    return rows.where(rows.delay <= LIMIT)",
    ]


PROSE = ["# Nulls are late.", '"""Late or not."""', '"""Flights."""', "# minutes"]


@given(st.sets(st.sampled_from(PROSE)), st.booleans())
def test_prose_alone_is_no_difference(taken: set[str], spread: bool) -> None:
    text = FLIGHTS
    for each in taken:
        text = text.replace(each, "")
    if spread:
        text = text.replace("(", "(\n    ").replace("def on_time(\n    ", "def on_time(")

    assert part_diffs(side(), side(text)) == ()


def test_a_helper_that_is_new_is_shown_whole() -> None:
    drop = "def drop(rows):\n    return rows.where(True)\n"
    diffs = changes_by_part(side(helpers=f"def clean(rows):\n    return drop(rows)\n{drop}"))

    of = "function pipelines/helpers.py"
    assert diffs[f"{of}:drop"] == ["+def drop(rows):", "+    return rows.where(True)"]
    assert diffs[f"{of}:clean"] == ["-    return rows", "+    return drop(rows)"]


def test_what_is_gone_is_shown_whole() -> None:
    diffs = changes_by_part(edited("rows.delay < LIMIT", "rows.delay < 15"))

    assert diffs["value pipelines/flights.py:LIMIT"] == ["-LIMIT = 15"]


def test_a_name_that_means_something_else_is_shown_though_the_code_is_the_same() -> None:
    diff = only(side(), edited("import math", "import cmath as math"))

    assert changes(diff) == ["-# math is math", "+# math is cmath"]


def test_what_importing_does_is_shown() -> None:
    diffs = changes_by_part(side(helpers="print('hello')\n" + HELPERS))

    assert diffs["statements pipelines/helpers.py"] == ["+print('hello')"]


TWO = Topic("hits", event="id string, n int", partitions=2, key="id")
SUMMED = Table("delays", keys=("id",), fold={"n": sum_("n")}, checks=["n > 0"])
UNCHECKED = Table("delays", keys=("id",), fold={"n": count()})


@pytest.mark.parametrize(
    ("changed", "part", "lines"),
    [
        (
            {"topic": Topic("hits", event="id string, n bigint")},
            *("topic hits", ["-column n int", "+column n bigint"]),
        ),
        (
            {"topic": TWO},
            *("topic hits", ["-partitions 1", "-key (none)", "+partitions 2", "+key id"]),
        ),
        ({"tables": [SUMMED]}, "table delays", ["-n = count()", "+n = sum(n)"]),
        ({"tables": [UNCHECKED]}, "table delays", ["-check n > 0"]),
        (
            {"tables": [Table("delays")]},
            *("table delays", ["-keys id", "-n = count()", "-check n > 0", "+rows are appended"]),
        ),
        ({"views": [View("v", "select 1\nfrom delays")]}, "view v", ["+select 1", "+from delays"]),
    ],
)
def test_declarations_are_compared(changed: dict[str, object], part: str, lines: list[str]) -> None:
    """Declarations are compared line by line."""
    diff = only(side(), side(**changed))

    assert (diff.part, changes(diff)) == (part, lines)


def test_every_change_of_a_version_has_its_diff() -> None:
    text = FLIGHTS.replace("15", "16").replace("2.5", "3.5")
    old, new = side(), side(text, topic=Topic("hits", event="id string"))

    changed = {part for part, _ in old.parts.items() ^ new.parts.items()}
    assert {diff.part for diff in part_diffs(old, new)} == changed
    assert all(changes(diff) for diff in part_diffs(old, new))


def test_a_birth_that_kept_no_declarations_shows_none() -> None:
    old = side()
    forgetful = CodeSide(old.parts, old.files, {})

    assert only(forgetful, side(topic=Topic("hits", event="id string"))).lines == ()


@pytest.mark.parametrize("files", [{}, {"pipelines/flights.py": b"this is (no python"}])
def test_a_snapshot_that_cannot_be_read_shows_none(files: dict[str, bytes]) -> None:
    assert only(CodeSide(side().parts, files, side().declarations), edited("15", "16")).lines == ()


def test_a_changed_file_of_rows_is_shown_by_its_path_and_its_rows(tmp_path: Path) -> None:
    def loaded(content: str) -> CodeSide:
        (tmp_path / "pipelines").mkdir(exist_ok=True)
        (tmp_path / "pipelines" / "rates.csv").write_text(content, encoding="utf-8")
        (tmp_path / "pipelines" / "web.py").write_text(WITH_RATES, encoding="utf-8")
        project = load_project(tmp_path)
        found = project.pipelines["web"]
        parts = compute_fingerprint(found, "pipelines.web", "web", project.sources.find).parts
        files = snapshot_files("pipelines.web", project.sources.find)
        return CodeSide(parts, files, declaration_lines(found))

    diff = only(loaded("a,b\n1,x\n2,y\n3,z\n"), loaded("a,b\n1,x\n2,Y\n3,z\n4,w\n"))

    (gone, new) = changes(diff)
    assert gone.startswith("-3 rows of pipelines/rates.csv, 1 of them only here, with SHA-256 ")
    assert new.startswith("+4 rows of pipelines/rates.csv, 2 of them only here, with SHA-256 ")
    assert new.endswith("..., columns a int, b string")
