"""A root that version 0.1 has made opens under this version.

tests/data/root-0.1.md says how the root was made.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kappa.base.errors import ExitCode
from kappa.commands.app import run_command

DATA = Path(__file__).parent.parent / "data"
Run = Callable[..., str]
QUERIES = {
    "by_customer": ("select * from by_customer order by customer",),
    "customers": ("select * from customers order by id",),
    "countries": ("select * from countries order by country",),
    "by_customer_1": ("--at-generation", "1", "select * from by_customer order by customer"),
}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs a command in the project of the kept root.

    The root is adopted, since a root on another machine is a copy.
    """
    with tarfile.open(DATA / "root-0.1.tar.gz") as kept:
        kept.extractall(tmp_path, filter="data")

    def run_here(*typed: str) -> str:
        assert run_command(["--project", str(tmp_path / "shop"), *typed]) == ExitCode.OK
        return capsys.readouterr().out

    run_here("root", "adopt")
    return run_here


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_as_before(run: Run, tmp_path: Path, name: str) -> None:
    before = json.loads((tmp_path / "shop" / f"{name}.json").read_text(encoding="utf-8"))

    assert json.loads(run("query", "-o", "json", *QUERIES[name]))["rows"] == before["rows"]


def test_the_version_is_the_same(run: Run) -> None:
    """A new release of Kappa alone makes no pipeline replay."""
    assert run("validate").startswith("shop: valid (version 79f708e2ad)")


def test_nothing_is_damaged_and_gc_converges(run: Run) -> None:
    """Both commands would end with an error if anything was damaged."""
    run("doctor")
    run("scrub")

    run("gc")

    assert json.loads(run("gc", "--dry-run", "-o", "json"))["bytes"] == 0
    run("scrub")
    (row,) = json.loads(run("query", "-o", "json", "select count(*) as n from customers"))["rows"]
    assert row == {"n": 20}
