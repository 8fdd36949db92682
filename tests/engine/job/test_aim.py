"""Law 13 without Spark: how far bounded slices may go, and what counts as an alignment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kappa.base.errors import Broken
from kappa.base.sections import EngineSettings
from kappa.engine.job.bounded_legs import Aligner, CatchUp
from kappa.engine.read.archive_reader import Archives
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import Birth, TopicBirth, put_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store

LIVE = Frontier(1, "a", 1, Offsets({"orders": {0: 40, 1: 7}, "old": {0: 3}}), {"t": 4}, "then")
MINE = Frontier(1, "b", 1, Offsets({"orders": {0: 10, 1: 0}}), {"t": 1}, "then")


def birth(build: str, **ids: str) -> Birth:
    topics = tuple(TopicBirth(name, topic_id, "retained", 1) for name, topic_id in ids.items())
    return Birth(build, "p", "v", {}, 1, {}, "m", topics, (), {}, {}, {}, "then", "ada")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Returns a store in which build a serves, with the frontier LIVE."""
    store = Store(tmp_path)
    put_birth(store, birth("a", orders="1", old="2"))
    Frontiers(store, "a").publish(LIVE)
    assert Journal(store).append(
        1, Served(1, 1, {"p": "a"}, Receipt("p", "a", "v", Offsets(), None, None, first=True))
    )
    return store


class Log:
    """A log in which every partition ends at the same offset."""

    def __init__(self, end: int) -> None:
        self._end = end

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets({topic: {0: self._end, 1: self._end} for topic in topics})


def catch_up(
    store: Store,
    mine: Birth,
    *,
    lost: bool = False,
    newest: Frontier = MINE,
    end: int = 100,
    slice_records: int = 1000,
) -> CatchUp:
    aligner = Aligner(store, mine, lease_seconds=60, clock=lambda: 0.0)
    guard = SimpleNamespace(wants_archive=lambda _start: lost)
    job = SimpleNamespace(
        store=store,
        birth=mine,
        engine=EngineSettings(slice_records=slice_records),
        log=Log(end),
        slices=SimpleNamespace(archives=Archives(store, [], {}), guard=guard),
        publisher=SimpleNamespace(newest=newest),
    )
    return CatchUp(job, aligner, ensure_rejects_within_limit=lambda *_: None)  # type: ignore[arg-type]  # nothing is folded


def test_no_planned_slice_goes_past_the_live_builds_frontier_in_any_partition(
    store: Store,
) -> None:
    leg = catch_up(store, birth("b", orders="1", new="3"), slice_records=15)._catch_up_leg(small=0)

    assert leg is not None
    assert all(LIVE.offsets.covers(end.only({"orders"})) for end in leg.ends)
    # What the live build does not read is read to its end: there is nothing to compare it with.
    assert leg.end == Offsets({"orders": {0: 40, 1: 7}, "new": {0: 100, 1: 100}})


def test_a_topic_made_anew_is_another_one_and_is_read_to_its_end(store: Store) -> None:
    leg = catch_up(store, birth("b", orders="another"))._catch_up_leg(small=0)

    assert leg is not None
    assert leg.end == Offsets({"orders": {0: 100, 1: 100}})


@pytest.mark.parametrize(
    ("end", "is_warm", "slice_", "first"),
    [
        (3_000_000, True, -1, 25_000),
        (3_000_000, False, -1, 3_000_000),
        (3_000_000, True, 0, 3_000_000),
        # Of a short catch-up each slice is small.
        (700_000, False, -1, 233_332),
        # A longer one is for the workers of Spark.
        (1_000_000, False, -1, 1_000_000),
        (10_000, True, -1, 20_000),
        (5_000_000, False, -1, 25_000),
    ],
)
def test_a_new_builds_first_slice_is_small_where_that_costs_little(
    store: Store, end: int, is_warm: bool, slice_: int, first: int
) -> None:
    newest = replace(MINE, offsets=Offsets(), slice=slice_)

    leg = catch_up(
        store, birth("b", new="3"), newest=newest, end=end, slice_records=4_000_000
    )._catch_up_leg(small=0, first=25_000, is_warm=is_warm)

    assert leg is not None
    assert leg.ends[0].distance(Offsets()) == first


def test_what_archives_alone_have_is_folded_here_however_little_it_is(store: Store) -> None:
    mine = birth("b", orders="another")

    assert catch_up(store, mine)._catch_up_leg(small=1000) is None
    leg = catch_up(store, mine, lost=True)._catch_up_leg(small=1000)

    assert leg is not None
    assert leg.end == Offsets({"orders": {0: 100, 1: 100}})


def test_builds_that_stand_elsewhere_are_not_aligned_whatever_is_put(store: Store) -> None:
    there = Alignment(
        1, replace(MINE, offsets=Offsets({"orders": {0: 40, 1: 8}})), LIVE, ("orders",), "lease"
    )

    with pytest.raises(Broken, match="are not aligned"):
        Alignments(store, "b").put(there)

    assert Alignments(store, "b").last() is None
    Alignments(store, "b").put(
        replace(
            there,
            candidate=replace(MINE, offsets=Offsets({"orders": {0: 40, 1: 7}, "new": {0: 9}})),
        )
    )
