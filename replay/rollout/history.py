"""Lists every rollout with its receipt, every proof, retirement, pause and redrive. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.errors import UsageError, did_you_mean
from kappa.base.units import count_of
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.rollout_numbers import rollout_of_number
from kappa.replay.rollout.state import State
from kappa.state.journal.events import (
    Paused,
    PipelineRetired,
    Proved,
    Receipt,
    RedriveAsked,
    Resumed,
    Served,
)
from kappa.state.journal.journal import JournalRecord


@dataclass(frozen=True, slots=True)
class RolloutEntry:
    """A rollout, and the journal record with which it began to serve.

    `served` is None if the rollout never served.
    """

    rollout: Rollout
    served: JournalRecord | None

    @property
    def generation(self) -> int | None:
        """Returns the generation that began with this rollout, or None if it has not served."""
        return None if self._event is None else self._event.generation

    @property
    def receipt(self) -> Receipt | None:
        """Returns the receipt of the rollout's promote, or None if the rollout has not served."""
        switched = () if self._event is None else self._event.switched
        return next((each.receipt for each in switched if each.rollout == self.rollout.id), None)

    @property
    def _event(self) -> Served | None:
        return (
            self.served.event
            if self.served is not None and isinstance(self.served.event, Served)
            else None
        )


def rollout_entries(state: State) -> tuple[RolloutEntry, ...]:
    """Returns all rollouts, oldest first."""
    return tuple(RolloutEntry(rollout, state.served_in(rollout.id)) for rollout in state.rollouts)


def ensure_known(state: State, pipeline: str) -> None:
    """Raises UsageError if a pipeline never had a rollout.

    The hint suggests the most similar name of a pipeline, or lists all pipelines.
    """
    known = sorted({rollout.pipeline for rollout in state.rollouts})
    if pipeline not in known:
        raise UsageError(
            f"pipeline {pipeline} has no history",
            hint=did_you_mean(pipeline, known)
            or (f"there are {', '.join(known)}" if known else "nothing was deployed yet"),
        )


def generation_meant(state: State, generation: int | None, rollout: int | None) -> int:
    """Returns the number of a generation that is given by its number or by one of its rollouts.

    `generation` and `rollout` are numbers. Raises UsageError unless exactly one of them is given,
    or if the rollout has not served.
    """
    if rollout is None and generation is not None:
        return generation
    if rollout is None or generation is not None:
        raise UsageError(
            "a generation is named by its number, or by the rollout that made it",
            hint="kappa show GENERATION, or kappa show --rollout NUMBER; kappa history lists both",
        )
    made = rollout_of_number(state, rollout)
    found = RolloutEntry(made, state.served_in(made.id)).generation
    if found is None:
        raise UsageError(
            f"rollout {rollout} of pipeline {made.pipeline} has made no generation: it is "
            f"{made.phase}",
            hint=f"kappa wait {rollout} shows how it ended, or waits for it",
        )
    return found


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """The proof of a build, passed or failed, with its journal record and the build's version."""

    record: JournalRecord
    found: Proved
    version: str


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """The retirement, pause, resumption or redrive of a pipeline, with its journal record.

    `version` is the version of the retired build, otherwise "".
    """

    record: JournalRecord
    event: PipelineRetired | Paused | Resumed | RedriveAsked
    version: str = ""


def service_records(state: State) -> tuple[ServiceRecord, ...]:
    """Returns all retirements, pauses, resumptions and redrives of pipelines, oldest first."""
    return tuple(
        ServiceRecord(
            record,
            record.event,
            state.versions[record.event.build] if isinstance(record.event, PipelineRetired) else "",
        )
        for record in state.service
        if isinstance(record.event, PipelineRetired | Paused | Resumed | RedriveAsked)
    )


def redrive_text(event: RedriveAsked) -> str:
    """Describes the records of a redrive, such as `2 records of topic visits`."""
    return ", ".join(
        f"{count_of(count, 'record')} of topic {topic}" for topic, count in event.records.items()
    )


def proof_records(state: State) -> tuple[ProofRecord, ...]:
    """Returns all proofs, oldest first."""
    return tuple(
        ProofRecord(record, record.event, state.versions[record.event.build])
        for record in state.proofs
        if isinstance(record.event, Proved)
    )
