"""Laws of waiting for a write: the wait ends once all readers see the write, or at a time-out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from served import DELAYS, Platform, Watched, serve_build

from kappa.base.errors import Damaged, TimedOut, UsageError
from kappa.serving.query.pin.moments import parse_offsets, written_offsets
from kappa.serving.query.pin.write_token import ServedLook, Shown, ensure_covered, pipelines_behind
from kappa.state.build import put_birth, read_birth
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets

vectors = st.dictionaries(
    st.sampled_from(["a", "b.c", "d_e-f"]),
    st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1),
    min_size=1,
).map(Offsets)
worlds = st.dictionaries(st.sampled_from(["p", "q", "r"]), vectors, min_size=1)


def shown(offsets: dict[str, Offsets]) -> Shown:
    return {pipeline: (f"{pipeline}-1", each) for pipeline, each in offsets.items()}


@given(offsets=vectors)
def test_a_write_token_is_read_as_it_was_written(offsets: Offsets) -> None:
    written = written_offsets(offsets)

    assert parse_offsets(written) == offsets
    # A header, or an argument of a shell that needs no quotes.
    assert not {*written} & {*" '\"$;&|<>\n"}


@examples(200)
@given(token=vectors, world=worlds)
def test_a_pipeline_is_behind_in_exactly_what_it_reads_and_does_not_show(
    token: Offsets, world: dict[str, Offsets]
) -> None:
    if any(not any(topic in each.next for each in world.values()) for topic in token.next):
        with pytest.raises(UsageError, match="nothing that serves reads topic"):
            pipelines_behind(token, shown(world))
        return

    found = {each.pipeline: each for each in pipelines_behind(token, shown(world))}

    missing = {
        (pipeline, *each)
        for pipeline, offsets in world.items()
        for each in token.items()
        if each[0] in offsets.next and offsets.at(each[0], each[1]) < each[2]
    }
    assert {
        (pipeline, *each) for pipeline, behind in found.items() for each in behind.awaited.items()
    } == missing
    assert all(
        world[pipeline].at(topic, partition) == offset
        for pipeline, behind in found.items()
        for topic, partition, offset in behind.shown.items()
    )


@given(token=vectors, world=worlds, step=vectors)
def test_what_was_covered_stays_covered_as_frontiers_advance(
    token: Offsets, world: dict[str, Offsets], step: Offsets
) -> None:
    world = {pipeline: token.highest_with(offsets) for pipeline, offsets in world.items()}
    assert pipelines_behind(token, shown(world)) == ()

    later = {pipeline: offsets.highest_with(step) for pipeline, offsets in world.items()}
    assert pipelines_behind(token, shown(later)) == ()


def test_where_nothing_serves_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(UsageError, match="nothing is served yet"):
        pipelines_behind(Offsets({"flights": {0: 1}}), {})


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform(Watched(tmp_path / "röot"))
    platform.serve("flights", {DELAYS: None})
    return platform


def advance(platform: Platform, build: str, offset: int) -> None:
    """Publishes the next frontier of a build, with unchanged tables."""
    frontiers = Frontiers(platform.store, build)
    last = frontiers.newest()
    assert last is not None
    offsets = Offsets({"flights": {0: offset}})
    frontiers.publish(replace(last, number=last.number + 1, offsets=offsets))


def test_a_wait_ends_with_the_frontier_that_covers_the_write(platform: Platform) -> None:
    assert isinstance(platform.store, Watched)
    token = Offsets({"flights": {0: 13}})
    waiting = threading.Thread(
        target=ensure_covered, args=(platform.store, token), kwargs={"seconds": 60}
    )
    waiting.start()
    assert platform.store.missed.wait(60)
    assert waiting.is_alive()

    advance(platform, "flights-1", 13)
    waiting.join(60)

    assert not waiting.is_alive()
    ensure_covered(platform.store, token, seconds=0)


def test_all_pipelines_that_read_the_topic_are_waited_for_and_no_others(platform: Platform) -> None:
    platform.serve("tails", {})
    advance(platform, "flights-1", 20)
    token = Offsets({"flights": {0: 20}})

    with pytest.raises(TimedOut) as late:
        ensure_covered(platform.store, token, seconds=0)
    assert late.value.message == (
        "after 0 s tails (build tails-2) shows flights:0=12, not yet flights:0=20"
    )

    frontiers = Frontiers(platform.store, "tails-2")
    last = frontiers.newest()
    assert last is not None
    # It reads another topic now.
    frontiers.publish(replace(last, number=2, offsets=Offsets({"tails": {0: 1}})))
    ensure_covered(platform.store, token, seconds=0)


def test_an_overlay_shows_what_the_build_below_it_has(platform: Platform) -> None:
    below = read_birth(platform.store, "flights-1")
    put_birth(platform.store, replace(below, build="flights-2", tables_of="flights-1"))
    serve_build(platform.store, "flights", "flights-2")
    look = ServedLook(platform.store)
    assert look.shown_offsets() == {"flights": ("flights-2", Offsets({"flights": {0: 12}}))}

    advance(platform, "flights-1", 30)

    assert look.shown_offsets() == {"flights": ("flights-2", Offsets({"flights": {0: 30}}))}


def test_a_look_follows_frontiers_collections_and_switches(platform: Platform) -> None:
    look = ServedLook(platform.store)
    assert look.shown_offsets()["flights"][1].at("flights", 0) == 12
    for offset in range(13, 20):
        advance(platform, "flights-1", offset)
    assert look.shown_offsets()["flights"][1].at("flights", 0) == 19
    for offset in range(20, 30):
        advance(platform, "flights-1", offset)
    # The one that it knows is gone, and so are those that follow it.
    Frontiers(platform.store, "flights-1").delete_below(17)
    assert look.shown_offsets()["flights"][1].at("flights", 0) == 29

    put_birth(platform.store, replace(read_birth(platform.store, "flights-1"), build="flights-2"))
    serve_build(platform.store, "flights", "flights-2")
    with pytest.raises(Damaged, match="flights-2 has no frontier"):
        look.shown_offsets()
    first = Frontiers(platform.store, "flights-1").get(17)
    assert first is not None
    frontier = replace(first, number=1, build="flights-2", offsets=Offsets({"flights": {0: 40}}))
    Frontiers(platform.store, "flights-2").publish(frontier)
    assert look.shown_offsets() == {"flights": ("flights-2", Offsets({"flights": {0: 40}}))}


@pytest.mark.parametrize(
    ("paused", "is_up", "hint"),
    [
        (False, True, "kappa status shows how far it is"),
        (True, True, "kappa resume flights"),
        (False, False, "kappa up -d"),
        (True, False, "kappa resume flights; kappa is not up, so nothing is folded: kappa up -d"),
    ],
)
def test_a_wait_whose_time_is_up_gives_the_reasons_that_are_known(
    platform: Platform, hint: str, *, paused: bool, is_up: bool
) -> None:
    if paused:
        assert Journal(platform.store).append(2, Paused("flights")) is not None

    with pytest.raises(TimedOut) as late:
        ensure_covered(
            platform.store, Offsets({"flights": {0: 99}}), seconds=0, is_up=lambda: is_up
        )

    assert "shows flights:0=12, not yet flights:0=99" in late.value.message
    assert hint in late.value.hint
