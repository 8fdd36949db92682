"""Holds, pauses, retirements and rollout numbers, computed from the journal's records. Pure.

For each of these, a function computes the new state from the old state and one more record. The
rules are only in this module, so that all callers agree:

- A hold stops a build from publishing frontiers. A promote appends a Held record that names the
  live build (replay/rollout/promote.py); this record begins the hold. The live build's job
  acknowledges the hold (kappa/engine/write/publisher.py). A later record ends the hold: a Released
  record that names the hold, or a record that ends the hold's rollout. Rollouts that are promoted
  together are held together: a record that ends one of these holds ends all of them.
- A pause of a pipeline ends with a Resumed record. If the pipeline is retired during the pause, the
  pause ends when the pipeline's last build is retired.
- A retirement of a pipeline ends when the pipeline serves again, by an undo or a deploy. If a query
  names a table of a retired pipeline, the error contains the time of the retirement, and the
  command that makes the pipeline serve again.
- The n-th record that begins a rollout begins rollout n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kappa.base.clock import time_text
from kappa.state.journal.events import (
    Abandoned,
    Failed,
    Held,
    Paused,
    PipelineRetired,
    Released,
    Resumed,
    Retired,
    Served,
    Staged,
    SwitchAsked,
    VerifyAsked,
)
from kappa.state.journal.journal import JournalRecord


def hold_after(
    hold: JournalRecord | None, record: JournalRecord, build: str
) -> JournalRecord | None:
    """Returns the hold of `build` that is in effect after the record `record`, or None.

    `hold` is the hold of `build` that was in effect before that record, or None.
    """
    match record.event:
        case Held(build=held) if held == build:
            return record
        case Released(hold=number) if hold is not None and number == hold.number:
            return None
        case Released(rollout=rollout) if (
            hold is not None and rollout in _held_event(hold).together
        ):
            return None
        case (
            Served(rollout=rollout)
            | Abandoned(rollout=rollout)
            | Failed(rollout=rollout)
            | VerifyAsked(rollout=rollout)
        ) if hold is not None and rollout in _held_rollouts(hold):
            return None
    return hold


def _held_rollouts(hold: JournalRecord) -> tuple[int, ...]:
    return _held_event(hold).rollout, *_held_event(hold).together


def _held_event(hold: JournalRecord) -> Held:
    assert isinstance(hold.event, Held)
    return hold.event


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a pipeline, which began at the time `at`.

    `by` is the person who requested the pause. If the pipeline was retired during the pause, `kept`
    is the build to which an undo can still return. Otherwise `kept` is None.
    """

    at: str
    by: str
    kept: str | None = None

    @property
    def text(self) -> str:
        """The pause as a short text for display."""
        return f"paused since {time_text(self.at)} by {self.by}"


Pauses = Mapping[str, Pause]


def paused_after(pauses: Pauses, record: JournalRecord) -> Pauses:
    """Returns the pauses that are in effect after the record `record`, by pipeline.

    `pauses` contains the pauses that were in effect before that record.
    """
    match record.event:
        case Paused(pipeline=pipeline):
            return {**pauses, pipeline: Pause(record.at, record.by)}
        case Resumed(pipeline=pipeline):
            return _without_pipelines(pauses, pipeline)
        case PipelineRetired(pipeline=pipeline, build=build) if pipeline in pauses:
            return {**pauses, pipeline: replace(pauses[pipeline], kept=build)}
        case Served(serving=serving) if any(
            each.kept and name in serving for name, each in pauses.items()
        ):
            # The retirement was undone: the pipeline is as before.
            return {
                name: replace(each, kept=None) if name in serving else each
                for name, each in pauses.items()
            }
        case Retired(build=build):
            return _without_pipelines(
                pauses, *(name for name, each in pauses.items() if each.kept == build)
            )
        case _:
            return pauses


def _without_pipelines(pauses: Pauses, *pipelines: str) -> Pauses:
    return {name: each for name, each in pauses.items() if name not in pipelines}


@dataclass(frozen=True, slots=True)
class Retirement:
    """The retirement of a pipeline, as recorded in `event`.

    If `kept` is True, the build that served the pipeline last still exists and can serve again.
    """

    event: PipelineRetired
    at: str
    by: str
    kept: bool = True

    @property
    def kept_until(self) -> datetime:
        """The time until which the pipeline's last build is kept, so that an undo is possible."""
        return datetime.fromisoformat(self.at).astimezone(UTC) + timedelta(
            seconds=self.event.kept_seconds
        )

    @property
    def text(self) -> str:
        """The retirement as a short text for display."""
        return f"retired at generation {self.event.generation} by {self.by}"

    @property
    def way_back(self) -> str:
        """Returns a text with the command that makes the pipeline serve again.

        If the pipeline's last build is kept, the text also contains the time until which it is
        kept.
        """
        name = self.event.pipeline
        if not self.kept:
            return f"its data are deleted; to replay it: kappa deploy {name}"
        until = time_text(self.kept_until)
        return f"kappa undo {name} brings it back until {until}"


Retirements = Mapping[str, Retirement]


def retired_after(retirements: Retirements, record: JournalRecord) -> Retirements:
    """Returns the retirements that are in effect after the record `record`, by pipeline.

    `retirements` contains the retirements that were in effect before that record.
    """
    match record.event:
        case PipelineRetired() as event:
            return {**retirements, event.pipeline: Retirement(event, record.at, record.by)}
        case Served(serving=serving) if retirements.keys() & serving.keys():
            return {name: each for name, each in retirements.items() if name not in serving}
        case Retired(build=build):
            return {
                name: replace(each, kept=False) if each.event.build == build else each
                for name, each in retirements.items()
            }
        case _:
            return retirements


def rollout_id(record: JournalRecord) -> int | None:
    """Returns the id of a record's rollout: the number of the record that began the rollout.

    Returns None if the record belongs to no rollout.
    """
    if isinstance(record.event, Staged | SwitchAsked):
        return record.number
    id_: int | None = getattr(record.event, "rollout", None)
    return id_


def begun_after(begun: tuple[int, ...], record: JournalRecord) -> tuple[int, ...]:
    """Returns the ids of all rollouts that began with the record `record` or earlier, ascending.

    `begun` contains the ids of the rollouts that had begun before that record.
    """
    return (*begun, record.number) if isinstance(record.event, Staged | SwitchAsked) else begun


def rollout_number(record: JournalRecord, begun: Sequence[int]) -> int | None:
    """Returns the number of a record's rollout (1, 2, 3, ...), or None if it has no rollout.

    `begun` contains the ids of the rollouts that had begun when the record was appended, ascending.
    """
    id_ = rollout_id(record)
    return None if id_ is None else bisect_right(begun, id_)
