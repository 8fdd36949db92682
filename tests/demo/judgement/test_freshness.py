"""Laws of freshness: the time from the sending of an event to the first answer with it."""

from __future__ import annotations

from demo.judgement.freshness import Freshness, measure
from kappa.state.offsets import Offsets


def answers(*seen: tuple[float, int]) -> list[tuple[float, Offsets]]:
    return [(at, Offsets({"flights": {0: following}})) for at, following in seen]


def test_an_event_is_visible_with_the_first_answer_whose_next_offset_lies_behind_it() -> None:
    sent = {0: [(0, 10.0), (1, 10.5), (2, 11.0)]}

    found = measure(
        sent,
        answers((10.4, 0), (10.8, 1), (11.5, 3), (12.0, 3)),
        topic="flights",
        since=0,
        until=100,
    )

    assert found is not None
    # Offset 0 waits 0.8 s, offset 1 waits 1.0 s, offset 2 waits 0.5 s.
    assert (found.events, *(round(each, 3) for each in (found.p50, found.p95, found.p99))) == (
        3,
        0.8,
        1.0,
        1.0,
    )


def test_events_outside_the_window_and_events_never_seen_do_not_count() -> None:
    sent = {0: [(0, 1.0), (1, 10.0), (2, 10.0), (3, 99.0)], 1: [(0, 10.0)]}

    found = measure(sent, answers((10.25, 2)), topic="flights", since=5.0, until=50.0)

    assert found == Freshness(1, 0.25, 0.25, 0.25)


def test_nothing_seen_is_no_freshness() -> None:
    assert measure({0: [(0, 1.0)]}, [], topic="flights", since=0, until=2) is None
