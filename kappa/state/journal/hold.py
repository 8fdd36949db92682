"""The hold: the journal record, if any, that keeps a build's frontier still. Pure.

It is decided in this one place. The live job and the promote both call it, so they cannot disagree.
A Held record that names the live build opens a hold. A later record ends it: a Released that names
the hold, or the end of its rollout, whatever that is. Rollouts that are promoted together are held
together: a record that ends the hold of one ends the holds of all. The promote
(replay/rollout/promote.py) opens holds, and the publisher (kappa/engine/write/publisher.py) answers
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kappa.state.journal.events import Abandoned, Failed, Held, Released, Served, VerifyAsked
from kappa.state.journal.journal import JournalRecord


def open_hold(records: Iterable[JournalRecord], build: str) -> JournalRecord | None:
    """Returns the Held record that holds `build` after these records, in order.

    Returns None if its frontier is free to move.
    """
    hold: JournalRecord | None = None
    for record in records:
        hold = hold_after(hold, record, build)
    return hold


def hold_after(
    hold: JournalRecord | None, record: JournalRecord, build: str
) -> JournalRecord | None:
    """Returns the hold of `build` after one more record; `hold` is the one before it."""
    match record.event:
        case Held(build=held) if held == build:
            return record
        case Released(hold=number) if hold is not None and number == hold.number:
            return None
        case Released(rollout=rollout) if hold is not None and rollout in _held(hold).together:
            return None
        case (
            Served(rollout=rollout)
            | Abandoned(rollout=rollout)
            | Failed(rollout=rollout)
            | VerifyAsked(rollout=rollout)
        ) if hold is not None and rollout in _rollouts(hold):
            return None
    return hold


def _rollouts(hold: JournalRecord) -> tuple[int, ...]:
    return _held(hold).rollout, *_held(hold).together


def _held(hold: JournalRecord) -> Held:
    assert isinstance(hold.event, Held)
    return hold.event
