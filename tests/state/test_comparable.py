"""Topics of two builds that are comparable now: a topic that lost its end is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kappa.base.errors import Broken
from kappa.state.build import Birth, TopicBirth
from kappa.state.stopped import (
    comparable_now,
    ensure_not_stopped,
    put_stopped,
    read_stopped,
)
from kappa.state.store import Store
from kappa.state.witness import LogCut

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

    put_stopped(store, "live", LogCut("it was cut", hint="replay", topics=["orders", "orders"]))

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
