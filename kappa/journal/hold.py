"""The hold: which journal record, if any, keeps a build's frontier still. Pure; the one place that decides it.

The live job and the promote both ask here, so they cannot disagree. A hold is opened by a Held record that names the live
build and ended by what follows it: a Released that names the hold, or the end of its rollout, whatever that is. Rollouts
that are promoted together are held together: what ends one's hold ends every one's.
Read next: replay/rollout/promote.py (who opens it), kappa/engine/write/publisher.py (who answers it).
"""

from __future__ import annotations

from collections.abc import Iterable

from kappa.journal.journal import Abandoned, Failed, Held, Record, Released, Served, VerifyAsked


def open_hold(records: Iterable[Record], build: str) -> Record | None:
    """The Held record that holds `build` after these records, in order; None where its frontier is free to move."""
    hold: Record | None = None
    for record in records:
        hold = hold_after(hold, record, build)
    return hold


def hold_after(hold: Record | None, record: Record, build: str) -> Record | None:
    """What holds `build` after one more record, `hold` being what held it before."""
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


def _rollouts(hold: Record) -> tuple[int, ...]:
    return _held(hold).rollout, *_held(hold).together


def _held(hold: Record) -> Held:
    assert isinstance(hold.event, Held)
    return hold.event
