"""Cases: folders of events, and files with the expected rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from kappa import Table, Topic, count, pipeline
from kappa.base.errors import UsageError
from kappa.develop.cases import (
    Case,
    compare_rows,
    project_cases,
    read_rows,
    rows_file,
    surplus_files,
    write_rows,
)

VISITS = Topic("visits", event="page string")


@pipeline(reads={"visits": VISITS}, writes=[Table("pages", keys=("page",), fold={"n": count()})])
def web(visits):
    return {"pages": visits}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case("events", tmp_path / "events", tmp_path / "rows")


def test_cases_are_folders_of_events(tmp_path: Path) -> None:
    for name in ("events", "tests/late/events", "tests/rows", "tests/early/events"):
        (tmp_path / name).mkdir(parents=True)

    assert [(each.name, each.events, each.rows) for each in project_cases(tmp_path)] == [
        ("events", tmp_path / "events", tmp_path / "tests/rows"),
        ("tests/early", tmp_path / "tests/early/events", tmp_path / "tests/early/rows"),
        ("tests/late", tmp_path / "tests/late/events", tmp_path / "tests/late/rows"),
    ]
    assert project_cases(tmp_path / "tests" / "rows") == ()


def test_rows_that_were_written_are_equal(case: Case) -> None:
    """Each value keeps its JSON form, and the order of lines does not matter."""
    rows = [
        {"page": "/", "n": 1, "d": Decimal("2.50"), "x": float("inf"), "b": b"\xff"},
        {"page": "ä", "n": None, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "l": [1, {"a": 2}]},
    ]
    file = rows_file(case, web, "pages")

    write_rows(file, rows)

    found = {"pages": rows, "rejects": []}
    assert [*compare_rows(case, web, found, {"pages": ("page",)})] == []
    file.write_text("\n".join(reversed(file.read_text().splitlines())) + "\n\n")
    assert [*compare_rows(case, web, found, {})] == []


def test_rows_that_differ_are_compared_by_key(case: Case) -> None:
    write_rows(rows_file(case, web, "pages"), [{"page": "/", "n": 1}, {"page": "/a", "n": 1}])

    ((table, file, change),) = compare_rows(
        case, web, {"pages": [{"page": "/", "n": 2}]}, {"pages": ("page",)}
    )

    assert (table, file) == ("pages", case.rows / "pages.ndjson")
    assert change is not None
    assert (len(change.added), len(change.removed), len(change.changed)) == (0, 1, 1)


def test_a_missing_file_differs_but_for_no_rejects(case: Case) -> None:
    rows = {"pages": [], "rejects": []}

    assert [table for table, _, change in compare_rows(case, web, rows, {})] == ["pages"]
    rows["rejects"] = [{"offset": 1}]
    assert [file.name for _, file, _ in compare_rows(case, web, rows, {})] == [
        *("pages.ndjson", "web.rejects.ndjson")
    ]


def test_no_rejects_leave_no_file(case: Case) -> None:
    file = rows_file(case, web, "rejects")
    write_rows(file, [{"offset": 1}])
    assert file.exists()

    write_rows(file, [])
    write_rows(rows_file(case, web, "pages"), [])

    assert [each.name for each in case.rows.iterdir()] == ["pages.ndjson"]


def test_files_that_no_table_writes(case: Case) -> None:
    for name in ("pages.ndjson", "old.ndjson", "notes.md"):
        (case.rows / name).parent.mkdir(exist_ok=True)
        (case.rows / name).touch()

    assert surplus_files(case, [rows_file(case, web, "pages")]) == (case.rows / "old.ndjson",)


@pytest.mark.parametrize(
    ("text", "told"), [('{"a": 1}\n{"a"', ":2: this is not JSON"), ("[1]", ":1: this is not a row")]
)
def test_a_line_that_is_no_row_is_named(case: Case, text: str, told: str) -> None:
    case.rows.mkdir()
    file = case.rows / "pages.ndjson"
    file.write_text(text)

    with pytest.raises(UsageError, match=told):
        read_rows(file)
