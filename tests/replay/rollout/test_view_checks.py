"""Laws of the check after a deploy: a view that differs from its text is reported only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from journals import NOWHERE, CaughtUp, served, staged, verified
from msgspec.structs import replace
from twins import folded, make_build

from kappa.base.settings import Settings
from kappa.replay.platform.services import AFTER_FRONTIERS, ViewCheckService
from kappa.replay.rollout.verify.view_check import check_views
from kappa.replay.status.status import observe_status
from kappa.state.build_status import read_view_check
from kappa.state.frontier import Frontiers
from kappa.state.journal.journal import Journal
from kappa.state.store import Store
from kappa.state.table import TableBirth

LATE = TableBirth(
    "late",
    (*folded().columns, ("_deleted", "boolean"), ("_since", "bigint")),
    keys=("carrier",),
    view="select carrier, on_time from delays where on_time > 1",
    by=("carrier",),
    reads=("delays",),
)


def serve(store: Store, *, kept: int) -> None:
    """Makes a build serve whose view has the value `kept` for AA; the right value is 2."""
    rows: dict[TableBirth, Any] = {
        folded(): [{"carrier": "UA", "on_time": 1}, {"carrier": "AA", "on_time": 2}],
        LATE: [{"carrier": "AA", "on_time": kept, "_deleted": False, "_since": 1}],
    }
    made = make_build(store, "a", rows).frontier
    at = "2026-11-29T12:00:00+00:00"
    Frontiers(store, "a").publish(replace(made, number=2, published_at=at))
    for number, event in enumerate(
        (staged("a"), CaughtUp(1, NOWHERE), verified(1), served(1, 1, "a")), 1
    ):
        assert Journal(store).append(number, event) is not None


@pytest.mark.parametrize(("kept", "unlike"), [(2, 0), (3, 1)])
def test_status_tells_a_view_that_is_not_its_text(tmp_path: Path, kept: int, unlike: int) -> None:
    store = Store(tmp_path)
    serve(store, kept=kept)

    found = check_views(Settings(project=tmp_path), store, "a")

    assert len(found.unlike) == unlike
    (build,) = observe_status(store, None).builds
    assert build.broken == found.unlike
    if unlike:
        assert found.unlike[0].startswith("view late is not its query over the tables: 2 rows")


def test_a_build_that_does_not_serve_is_not_checked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    serve(store, kept=2)

    assert check_views(Settings(project=tmp_path), store, "b") is None


@pytest.mark.slow
def test_a_build_is_checked_once_its_slices_have_kept_its_views(tmp_path: Path) -> None:
    store, seconds = Store(tmp_path / "root"), 0.0
    serve(store, kept=3)
    (tmp_path / "kappa.toml").write_text(f'root = "{tmp_path / "root"}"\n', encoding="utf-8")
    said = list[str]()
    checks = ViewCheckService(
        store, Settings(project=tmp_path, root="root"), say=said.append, clock=lambda: seconds
    )
    checks.ensure_running(["a"])
    frontiers = Frontiers(store, "a")
    first = frontiers.newest()
    for number in range(3, AFTER_FRONTIERS + 3):
        assert said == []
        frontiers.publish(replace(first, number=number))
        seconds += 10
        checks.ensure_running(["a"])
    deadline = time.monotonic() + 60
    while read_view_check(store, "a") is None and time.monotonic() < deadline:
        seconds += 10
        checks.ensure_running(["a"])
        time.sleep(0.05)
    checks.end()

    assert said[0] == "the check of maintained views begins, of build a"
    assert (check := read_view_check(store, "a")) is not None
    assert len(check.unlike) == 1
