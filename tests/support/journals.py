"""Journals that are written with the terms of the domain, for tests of what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.state import State
from kappa.state.frontier import Frontier
from kappa.state.journal.events import (
    CaughtUp,
    Event,
    Held,
    PipelineRetired,
    Receipt,
    Served,
    Staged,
    SwitchAsked,
    Switched,
    Verified,
)
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.journal.projections import hold_after
from kappa.state.offsets import Offsets
from kappa.state.store import Store

NOWHERE = Offsets()


def numbered(*events: Event, after: int = 0) -> list[JournalRecord]:
    return [
        JournalRecord(number=number, event=event, at="then", by="ada@test", id=str(number))
        for number, event in enumerate(events, start=after + 1)
    ]


def state_of(store: Store) -> State:
    """Returns the state after all records of the journal."""
    return fold_records(Journal(store).after(0))


def append(store: Store, *events: Event, reason: str = "") -> State:
    """Appends events to the journal, and returns the state after them."""
    journal = Journal(store)
    for number, event in enumerate(events, start=state_of(store).last + 1):
        assert journal.append(number, event, reason) is not None
    return state_of(store)


def open_hold(records: Iterable[JournalRecord], build: str) -> JournalRecord | None:
    """Returns the Held record that still holds `build` after these records, given in order.

    Returns None if the build may publish frontiers.
    """
    hold: JournalRecord | None = None
    for record in records:
        hold = hold_after(hold, record, build)
    return hold


def staged(
    build: str,
    *,
    pipeline: str = "flights",
    auto_promote: bool = True,
    tables_of: str | None = None,
) -> Staged:
    return Staged(
        pipeline,
        build,
        f"version-of-{build}",
        ("new",),
        auto_promote=auto_promote,
        tables_of=tables_of,
    )


def switch_asked(build: str, *, pipeline: str = "flights") -> SwitchAsked:
    return SwitchAsked(pipeline, build, "undo")


def verified(rollout: int, *, verdict: str = "passed") -> Verified:
    return Verified(
        rollout, verdict, NOWHERE, reason="" if verdict == "passed" else "2 of 3 rows fail"
    )


def held(rollout: int, live: str, *, attempt: int = 1, together: tuple[int, ...] = ()) -> Held:
    return Held(rollout, live, attempt, together)


def served(
    rollout: int,
    generation: int,
    build: str,
    *,
    pipeline: str = "flights",
    live: str | None = None,
    others: dict[str, str] | None = None,
) -> Served:
    receipt = Receipt(
        pipeline,
        build,
        f"version-of-{build}",
        NOWHERE,
        live,
        None if live is None else NOWHERE,
        first=live is None,
    )
    return Served(rollout, generation, {**(others or {}), pipeline: build}, receipt)


def pipeline_retired(
    build: str,
    generation: int,
    *,
    pipeline: str = "flights",
    others: dict[str, str] | None = None,
    kept_seconds: float = 3600.0,
) -> PipelineRetired:
    return PipelineRetired(
        pipeline,
        build,
        generation,
        others or {},
        (f"{pipeline}_table",),
        NOWHERE,
        kept_seconds,
        generation - 1,
    )


def together(*each: Served) -> Served:
    """Returns one record that makes all the switches of these records together."""
    first, *others = each
    serving = {name: build for served in each for name, build in served.serving.items()} | {
        served.receipt.pipeline: served.receipt.build for served in each
    }
    return Served(
        first.rollout,
        first.generation,
        serving,
        first.receipt,
        tuple(Switched(served.rollout, served.receipt) for served in others),
    )


def at(offset: int, *, topic: str = "flights") -> Offsets:
    return Offsets({topic: {0: offset}})


def frontier(
    build: str, offset: int, *, number: int = 1, epoch: int = 1, hold: int | None = None
) -> Frontier:
    return Frontier(number, build, epoch, at(offset), {"delays": number}, "then", hold=hold)


# Two pipelines, each with a serving build and a verified candidate: rollouts 9 and 12.
_LIVE = (
    staged("a"),
    CaughtUp(1, NOWHERE),
    verified(1),
    served(1, 1, "a"),
    staged("x", pipeline="trains"),
    CaughtUp(5, NOWHERE),
    verified(5),
)
READY: tuple[Event, ...] = (
    *(*_LIVE, served(5, 2, "x", pipeline="trains", others={"flights": "a"})),
    *(staged("b", auto_promote=False), CaughtUp(9, NOWHERE), verified(9)),
    *(staged("y", pipeline="trains", auto_promote=False), CaughtUp(12, NOWHERE), verified(12)),
)
