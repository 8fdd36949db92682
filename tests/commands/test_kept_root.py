"""A root that an earlier release has made can be opened by this release.

tests/data/roots.md describes how the roots were made.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed import Testbed, platform

from kappa.base.errors import ExitCode
from kappa.commands.app import run_command
from kappa.serving.outlets.sinks.sink_status import sink_statuses

DATA = Path(__file__).parent.parent / "data"
Run = Callable[..., str]
# The version of the pipeline, by the release that made the root.
RELEASES = {"0.1": "79f708e2ad", "0.2": "9158ce53d3"}
QUERIES = {
    "by_customer": ("select * from by_customer order by customer",),
    "customers": ("select * from customers order by id",),
    "countries": ("select * from countries order by country",),
    "by_customer_1": ("--at-generation", "1", "select * from by_customer order by customer"),
}


def put_project(release: str, folder: Path) -> Path:
    """Extracts the project of a release, with its root, into a folder. Returns the project."""
    with tarfile.open(DATA / f"root-{release}.tar.gz") as kept:
        kept.extractall(folder, filter="data")
    return folder / "shop"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs a command in the project of the kept root.

    The root is adopted, because a root on another machine counts as a copy.
    """
    project = put_project(release, tmp_path)

    def run_here(*typed: str) -> str:
        assert run_command(["--project", str(project), *typed]) == ExitCode.OK
        return capsys.readouterr().out

    run_here("root", "adopt")
    return run_here


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_as_before(run: Run, tmp_path: Path, name: str) -> None:
    before = json.loads((tmp_path / "shop" / f"{name}.json").read_text(encoding="utf-8"))

    assert json.loads(run("query", "-o", "json", *QUERIES[name]))["rows"] == before["rows"]


def test_the_version_is_the_same(run: Run, release: str) -> None:
    """A new release of Kappa alone causes no replay of a pipeline."""
    assert run("validate").startswith(f"shop: valid (version {RELEASES[release]})")


def test_nothing_is_damaged_and_gc_converges(run: Run) -> None:
    """Both commands would end with an error if anything was damaged."""
    run("doctor")
    run("scrub")

    run("gc")

    assert json.loads(run("gc", "--dry-run", "-o", "json"))["bytes"] == 0
    run("scrub")
    (row,) = json.loads(run("query", "-o", "json", "select count(*) as n from customers"))["rows"]
    assert row == {"n": 20}


def written(bed: Testbed) -> int:
    """Returns the number of records that the sink has written."""
    (sink,) = sink_statuses(bed.store, 0.0)
    return sink.known.written


@pytest.mark.jvm
@pytest.mark.long
def test_its_job_goes_on_and_can_be_proved(tmp_path: Path) -> None:
    """The broker's data are kept with the root, so the log continues where it was."""
    project = put_project("0.2", tmp_path)
    assert run_command(["--project", str(project), "root", "adopt", "--send"]) == ExitCode.OK
    order = {"id": 300, "customer": "c1", "cents": 7, "at": "2026-12-01T00:00:00Z"}

    with platform(project, (project / "kappa.toml").read_text(encoding="utf-8")) as bed:
        (before,) = bed.rows("select orders, cents from by_customer where customer = 'c1'")
        before_sent = written(bed)
        bed.must("produce", "orders", "-", "--from", "jsonl", given=json.dumps(order))
        bed.wait_until_folded("shop", bed.log.end(["customers", "orders"]))

        (after,) = bed.rows("select orders, cents from by_customer where customer = 'c1'")
        assert after == {"orders": before["orders"] + 1, "cents": before["cents"] + 7}
        bed.wait(lambda: written(bed) == before_sent + 1, "the sink's record")
        bed.must("prove", "shop")
