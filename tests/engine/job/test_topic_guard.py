"""The guard of a build's topics: a build that was away for too long may lack deletions (law 5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kappa import Topic
from kappa.base.clock import now
from kappa.base.errors import Broken
from kappa.engine.job.topic_guard import TopicGuard
from kappa.state.build import Birth, TopicBirth
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets

THEN = datetime(2026, 11, 1, tzinfo=UTC)
DAY = {"delete.retention.ms": "86400000"}
PAGES = Topic("pages", kind="compacted", event="page string not null", key="page")
HITS = Topic("hits", event="page string not null")


def guard_of(topic: Topic, log: object, **options: float) -> TopicGuard:
    """Returns the guard of a build that reads one topic, without archives."""
    birth = Birth(
        "b",
        "web",
        "v",
        {},
        1,
        {},
        "m",
        (TopicBirth(topic.name, "id", str(topic.kind), 1),),
        (),
        {},
        {},
        {},
        "then",
        "ada",
    )
    return TopicGuard(birth, log, SimpleNamespace(), **options)  # type: ignore[arg-type]  # fakes


def test_all_that_was_there_when_asked_is_heard_though_more_arrives() -> None:
    """If more records arrive, the later of the ends that have been reached counts as heard."""
    asked: list[int] = []

    def end(_names: object) -> Offsets:
        asked.append(9 + len(asked))
        return Offsets({"pages": {0: asked[-1]}})

    guard = guard_of(PAGES, SimpleNamespace(end=end), heard_seconds=0.0)
    last = Frontier(3, "b", 1, Offsets({"pages": {0: 5}}), {}, THEN.isoformat())

    begun = now()
    assert guard.heard_with(last, Offsets({"pages": {0: 8}})) is None
    between = now()
    assert guard.heard_with(last, Offsets({"pages": {0: 8}})) is None
    after = now()
    assert between <= (guard.heard_with(last, Offsets({"pages": {0: 10}})) or begun) <= after
    assert asked == [9, 10, 11]
    assert guard.heard_with(last, Offsets({"pages": {0: 10}})) is None


@pytest.mark.parametrize(
    ("topic", "end", "days", "stops"),
    [(PAGES, 9, 2, True), (PAGES, 9, 0, False), (PAGES, 5, 2, False), (HITS, 9, 2, False)],
)
def test_a_job_that_was_away_too_long_stops_if_there_is_something_to_read(
    topic: Topic, end: int, days: int, stops: bool
) -> None:
    """A newer frontier whose job did not read the topic does not make the absence shorter."""
    asked: list[object] = []

    def end_of(names: list[str]) -> Offsets:
        asked.append(names)
        return Offsets({name: {0: end} for name in names})

    guard = guard_of(topic, SimpleNamespace(end=end_of, config=lambda _name: DAY))
    later = THEN + timedelta(days=days)
    last = Frontier(
        3,
        "b",
        1,
        Offsets({topic.name: {0: 5}}),
        {},
        later.isoformat(),
        heard_at=THEN.isoformat(),
    )

    guard.check_heard(None, THEN + timedelta(days=99))
    if stops:
        with pytest.raises(
            Broken,
            match="build b was away for too long, or reads too slowly: "
            "topic pages keeps a tombstone for 1 day",
        ) as stopped:
            guard.check_heard(last, later)
        assert "kappa replay web" in stopped.value.hint
        with pytest.raises(Broken, match="away for too long"):
            guard.check_still_heard(last, later)
    else:
        guard.check_heard(last, later)
    asked.clear()
    guard.check_still_heard(
        replace(last, heard_at=later.isoformat()), later + timedelta(seconds=60)
    )
    assert asked == []
    heard = guard.heard_with(last, last.offsets)
    assert (heard is not None) == (topic is PAGES and end == 5)
    assert guard.heard_with(replace(last, heard_at=now()), last.offsets) is None
