"""Laws of `Kappa-After`: an answer contains the named write, or there is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asking import Server, problem
from served import DELAYS, ROWS_OF_DELAYS, Platform, Watched

from kappa.serving.query.sandbox.question import Allowance
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal

pytestmark = pytest.mark.slow

COUNT = "select count(*) as n from delays"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform(Watched(tmp_path / "röot"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    return platform


@pytest.fixture
def server(platform: Platform) -> Iterator[Server]:
    with Server(platform.store, Allowance(at_once=1, wait_seconds=60)) as server:
        yield server


@pytest.mark.parametrize("snapshot", [{}, {"X_Kappa_Snapshot": "new"}])
def test_an_answer_waits_for_the_frontier_that_covers_the_write(
    platform: Platform, server: Server, snapshot: dict[str, str]
) -> None:
    assert isinstance(platform.store, Watched)
    assert server.query(COUNT, Kappa_After="flights:0=12").document["rows"] == [{"n": 3}]

    with ThreadPoolExecutor(2) as pool:
        platform.store.missed.clear()
        waiting = pool.submit(server.query, COUNT, Kappa_After="flights:0=13", **snapshot)
        other = pool.submit(server.query, COUNT, Kappa_After="flights:0=24")
        assert platform.store.missed.wait(60)
        # It has not kept the one place from others, either.
        assert server.query(COUNT).document["rows"] == [{"n": 3}]
        assert not waiting.done()
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

        answered = waiting.result()

    assert other.result().document["rows"] == [{"n": 6}]
    assert answered.document["rows"] == [{"n": 6}]
    assert answered.document["builds"]["flights"]["offsets"] == {"flights": {"0": 24}}
    if snapshot:
        pinned = answered.headers["x-kappa-snapshot"]
        assert server.query(COUNT, X_Kappa_Snapshot=pinned).document["rows"] == [{"n": 6}]


def test_a_write_that_is_not_shown_in_time_is_a_problem_with_the_reasons(
    platform: Platform, server: Server
) -> None:
    late = server.query(COUNT, Kappa_After="flights:0=13", Kappa_Wait="0.05")
    assert problem(late) == (
        504,
        "timed-out",
        "after 0.05 s flights (build flights-1) shows flights:0=12, not yet flights:0=13",
    )
    assert "kappa status" in late.document["hint"]

    assert Journal(platform.store).append(2, Paused("flights")) is not None
    late = server.query(COUNT, Kappa_After="flights:0=13", Kappa_Wait="0")
    assert "kappa resume flights" in late.document["hint"]


def test_no_request_waits_longer_than_the_server_allows(platform: Platform) -> None:
    with Server(platform.store, Allowance(at_once=1, wait_seconds=0.05)) as server:
        for asked in ({}, {"Kappa_Wait": "3600"}):
            late = server.query(COUNT, Kappa_After="flights:0=13", **asked)
            assert problem(late)[0] == 504
            assert late.document["detail"].startswith("after 0.05 s ")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Kappa_After": "17"}, "'17' is not an offset of a partition"),
        ({"Kappa_After": ""}, "no offsets are given"),
        ({"Kappa_After": "orders:0=1"}, "nothing that serves reads topic orders"),
        ({"Kappa_After": "flights:0=1", "Kappa_Wait": "soon"}, "kappa-wait"),
        ({"Kappa_After": "flights:0=1", "Kappa_Wait": "-1"}, "kappa-wait"),
        ({"Kappa_After": "flights:0=1", "Kappa_Wait": "nan"}, "kappa-wait"),
        ({"Kappa_After": "flights:0=1", "X_Kappa_Snapshot": "abc"}, "snapshot abc stays at its"),
    ],
)
def test_a_wait_that_cannot_be_meant_is_refused_at_once(
    server: Server, headers: dict[str, str], said: str
) -> None:
    found = server.query(COUNT, **headers)

    assert problem(found)[0] == 400
    assert said in found.document["detail"]
    assert found.document["hint"]
