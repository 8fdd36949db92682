"""Laws of a build's status: why its job stopped, and how far a job is within a slice."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kappa.base.clock import Stopwatch
from kappa.base.errors import Broken
from kappa.state.build import Birth, TopicBirth, folder_of_build
from kappa.state.build_status import (
    DECODED,
    SliceProgress,
    ViewCost,
    comparable_now,
    ensure_not_stopped,
    put_stopped,
    put_view_costs,
    read_counter,
    read_progress,
    read_stopped,
    read_view_costs,
    watch_slice,
)
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.witness import LogCutError
from tests.support.journals import at, frontier

BIRTH = Birth(
    "live",
    "shop",
    "v",
    {},
    1,
    {},
    "m",
    tuple(TopicBirth(name, f"id-of-{name}", "retained", 1) for name in ("orders", "items")),
    (),
    {},
    {},
    {},
    "then",
    "ada",
)
CANDIDATE = replace(BIRTH, build="candidate")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_topic_that_lost_its_end_is_not_comparable_while_the_job_is_stopped(store: Store) -> None:
    overlay = replace(BIRTH, build="overlay", tables_of="live")
    assert comparable_now(store, CANDIDATE, BIRTH) == {"orders", "items"}

    put_stopped(
        store, "live", LogCutError("it was cut", hint="replay", topics=["orders", "orders"])
    )

    for one, other in ((CANDIDATE, BIRTH), (BIRTH, CANDIDATE), (CANDIDATE, overlay)):
        assert comparable_now(store, one, other) == {"items"}
    stopped = read_stopped(store, "live")
    assert stopped is not None
    assert (stopped.cut, stopped.text) == (("orders",), "it was cut (replay)")
    ensure_not_stopped(store, "live")
    assert comparable_now(store, CANDIDATE, BIRTH) == {"orders", "items"}


def test_a_job_that_stopped_for_another_reason_is_comparable(store: Store) -> None:
    put_stopped(store, "live", Broken("its function raised", hint="mend it"))

    assert comparable_now(store, CANDIDATE, BIRTH) == {"orders", "items"}


PIECE = Slice(2, 1, at(1_000), at(3_000))
BEFORE = replace(frontier("b", 1_000), leg=2, slice=0)


def tasks(store: Store, *names: str) -> list[Path]:
    places = [store.path(f"{folder_of_build('b')}/{DECODED}/{name}") for name in names]
    for place in places:
        place.mkdir(parents=True)
    return places


def test_no_step_no_progress(store: Store) -> None:
    watch_slice(store, "b", PIECE, 5)

    assert read_progress(store, "b", BEFORE) is None


def test_while_a_slice_is_read_the_counts_of_its_tasks_add_up(store: Store) -> None:
    one, other = tasks(store, "0", "1")
    with watch_slice(store, "b", PIECE, 5).step("read"):
        read_counter(one, "0")(300)
        read_counter(one, "1")(50)
        read_counter(one, "1")(70)
        read_counter(other, "archived")(1_000)
        (other / "_2.read").write_text("")
        (one / "0.parquet").write_text("9")

        found = read_progress(store, "b", BEFORE)

    assert found == SliceProgress(2, 1, 5, 2_000, "read", 1_370)
    assert found.text == "slice 2 of 5: 1,370 of 2,000 records read"


@pytest.mark.parametrize(
    ("step", "does"),
    [("function", "folding"), ("commit", "committing"), ("frontier", "committing")],
)
def test_after_that_it_names_the_step(store: Store, step: str, does: str) -> None:
    watch = watch_slice(store, "b", PIECE, 5)
    with watch.step("read"), watch.step(step):
        found = read_progress(store, "b", BEFORE)

    assert found is not None
    assert (found.read, found.text) == (2_000, f"slice 2 of 5: 2,000 records read, {does}")


def test_a_slice_that_readers_see_is_no_longer_under_way(store: Store) -> None:
    with watch_slice(store, "b", PIECE, 5).step("frontier"):
        pass

    assert read_progress(store, "b", None) is not None
    for newest in (replace(BEFORE, slice=1), replace(BEFORE, leg=3, slice=0)):
        assert read_progress(store, "b", newest) is None


def test_what_cannot_be_read_or_written_stops_nobody(store: Store, tmp_path: Path) -> None:
    with watch_slice(store, "b", PIECE, 5).step("read"):
        pass
    store.put_json(f"{folder_of_build('b')}/slice/progress.json", {"format": 9})

    assert read_progress(store, "b", None) is None
    read_counter(tmp_path / "gone", "0")(1)


def test_the_costs_of_views_are_read_as_put(store: Store) -> None:
    assert read_view_costs(store, "b") == {}
    cost = ViewCost("by touched keys", 1_200, 1, 0.0123, "then", 40)

    put_view_costs(store, "b", {"busy": cost})

    assert read_view_costs(store, "b") == {"busy": cost}
    assert cost.text == (
        "computed by touched keys in 12 ms: 40 keys computed, 1 row changed, "
        "by a slice of 1,200 records"
    )


def test_a_stopwatch_names_each_step_as_it_begins() -> None:
    told: list[str] = []
    watch = Stopwatch(told.append)
    with watch.step("read"):
        assert told == ["read"]
    with watch.step("commit"):
        pass

    assert told == list(watch.seconds) == ["read", "commit"]
