"""Laws of kept frontiers: how long a frontier is the answer, and how long it is kept.

The frontiers of a switch are kept as long as their build.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kappa.state.frontier import Frontier
from kappa.state.kept_frontiers import (
    KeptFrontierRecord,
    ensure_past_gone,
    kept_frontiers_of,
    past_frontiers,
    put_kept_frontier,
    read_kept_frontier,
)
from kappa.state.offsets import Offsets
from kappa.state.store import Store


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def kept(number: int, *, stays: bool = False, until: float | None = None) -> KeptFrontierRecord:
    """Returns the kept frontier with this number, published at the second `number`."""
    frontier = Frontier(number, "b", 1, Offsets({"x": {0: number}}), {"t": number}, at(number))
    return KeptFrontierRecord(
        frontier, (7,) if stays else (), stays, None if until is None else at(until)
    )


def test_one_goes_when_even_its_successor_is_older_than_what_is_kept() -> None:
    every = (kept(100), kept(160), kept(220))

    assert past_frontiers(every, 160 + 3600 - 1, 3600) == ((), ())
    assert past_frontiers(every, 160 + 3600, 3600) == ((kept(100),), ())
    assert past_frontiers(every, 1e6, 3600) == ((kept(100), kept(160)), ())


def test_one_of_a_switch_stays_and_says_until_when_it_was_the_answer() -> None:
    every = (kept(100, stays=True), kept(160), kept(220, stays=True), kept(280))

    assert past_frontiers(every, 1e6, 3600) == ((kept(160),), (kept(100, stays=True, until=160),))


def test_until_is_said_once() -> None:
    assert (
        past_frontiers((kept(100, stays=True, until=130), kept(160), kept(220)), 1e6, 3600)[1] == ()
    )


def test_what_is_past_is_taken_away_and_nothing_else(any_store: Store) -> None:
    store = any_store
    for each in (kept(100, stays=True), kept(160), kept(220)):
        put_kept_frontier(store, each)

    assert ensure_past_gone(store, "b", 1e6, 3600) == (kept(100, stays=True, until=160), kept(220))
    assert ensure_past_gone(store, "b", 1e6, 3600) == kept_frontiers_of(store, "b")
    assert read_kept_frontier(store, "b", 160) is None


def test_one_that_cannot_be_read_is_moved_aside_and_told(
    any_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store = any_store
    store.put("builds/b/kept/00000000000000000003.json", b'{"frontier": 1}')

    assert kept_frontiers_of(store, "b") == ()
    assert "kept frontier 3 of build b cannot be read" in capsys.readouterr().err
    (aside,) = store.names("damaged")
    assert store.get(aside) == b'{"frontier": 1}'
