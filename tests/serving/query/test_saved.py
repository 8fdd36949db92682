"""Laws of an answer as a file: it has the query's rows, and is put in place whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.base.errors import UsageError
from kappa.serving.query.saved import save_answer
from kappa.state.store import Store

SQL = "select carrier, flights, 1.5::decimal(9, 2) as carrier from delays order by flights -- all"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform(Store(tmp_path / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    return platform


def test_each_form_has_the_rows_of_the_query(platform: Platform, tmp_path: Path) -> None:
    files = {form: tmp_path / f"it's.{form}" for form in ("parquet", "csv", "jsonl", "PARQUET")}
    for file in files.values():
        saved = save_answer(platform.store, SQL, file)
        assert (saved.rows, saved.snapshot.generation) == (3, 1)

    assert pq.read_table(files["parquet"]).to_pydict() == {
        "carrier": ["UA", "ÅÄ", None],
        "flights": [3, 4, 5],
        "carrier_1": [1.5, 1.5, 1.5],
    }
    assert files["PARQUET"].read_bytes()[:4] == b"PAR1"
    with files["csv"].open(encoding="utf-8", newline="") as lines:
        assert list(csv.reader(lines))[:2] == [
            ["carrier", "flights", "carrier_1"],
            ["UA", "3", "1.50"],
        ]
    read = [json.loads(line) for line in files["jsonl"].read_text(encoding="utf-8").splitlines()]
    assert read[2] == {"carrier": None, "flights": 5, "carrier_1": "1.50"}


def test_many_rows_are_all_written_and_nobody_else_meets_what_is_half_read(
    platform: Platform, tmp_path: Path
) -> None:
    file = tmp_path / "many.jsonl"

    assert save_answer(platform.store, "from range(10000)", file).rows == 10_000
    assert len(file.read_text(encoding="utf-8").splitlines()) == 10_000
    assert platform.ask("select count(*) from delays").rows == ((3,),)


@pytest.mark.parametrize(
    ("sql", "name", "says"),
    [
        ("from delays", "answer.xlsx", "no extension that names a form"),
        ("from delays", "nowhere/answer.csv", "cannot be written"),
        ("from delays", "nowhere/answer.parquet", "cannot be written"),
        ("from delay", "answer.parquet", "delay does not exist"),
        ("drop view delays", "answer.csv", "a statement of the kind drop"),
        ("select 1; select 2", "answer.jsonl", "more than one statement"),
        ("select 1) to '/tmp/x.csv'; --", "answer.parquet", "syntax error"),
        ("select error('stop') from range(9)", "answer.jsonl", "stop"),
    ],
)
def test_what_cannot_be_saved_leaves_what_was_there(
    platform: Platform, tmp_path: Path, sql: str, name: str, says: str
) -> None:
    before = tmp_path / name
    if before.parent.is_dir():
        before.write_text("before", encoding="utf-8")

    with pytest.raises(UsageError, match=says):
        save_answer(platform.store, sql, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if path.name != "root"] == (
        [name] if before.parent.is_dir() else []
    )
    assert not before.exists() or before.read_text(encoding="utf-8") == "before"
