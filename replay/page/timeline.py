"""Computes the timeline of the history page, newest first. Pure.

The entries are generations, rollouts that have not served, proofs, pauses, resumptions and
redrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.replay.page.rollout import UndoOffer, undo_offer
from kappa.replay.page.states import rollout_health
from kappa.replay.rollout.generation import retired_text, serving_in
from kappa.replay.rollout.history import ProofRecord, proof_records, redrive_text
from kappa.replay.rollout.prove.proof_text import proof_line
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.journal.events import (
    GenerationMade,
    Paused,
    PipelineRetired,
    Receipt,
    RedriveAsked,
    Resumed,
)
from kappa.state.journal.journal import JournalRecord


@dataclass(frozen=True, slots=True)
class Switch:
    """The switch of one pipeline to another build in a generation.

    `before` is the build that served until the switch, or None. `now` is True if the new build has
    served ever since.
    """

    rollout: Rollout
    pipeline: str
    build: str
    version: str
    before: str | None
    version_before: str | None
    what: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the timeline. `number` is the number of the entry's journal record.

    If the record created a generation, the entry has a `generation`, and `switches` are the
    switches of pipelines. Any other entry has a `rollout`, a `proof`, or only a `detail` (such as a
    pause). `now` is True if the entry's effect still applies.
    """

    number: int
    at: str
    by: str
    tone: str
    generation: int | None = None
    switches: tuple[Switch, ...] = ()
    rollout: Rollout | None = None
    proof: ProofRecord | None = None
    detail: str = ""
    now: bool = False
    pipelines: tuple[str, ...] = ()
    is_redrive: bool = False

    @property
    def kind(self) -> str:
        """Returns the kind of the entry, which is a key of `KINDS`."""
        if self.generation is not None:
            return "generations"
        if self.rollout is not None:
            return "failed" if self.rollout.phase is Phase.FAILED else "others"
        if self.proof is not None:
            return "proofs"
        return "redrives" if self.is_redrive else "pauses"


# The kinds of entries, each with its name on the page.
KINDS: Mapping[str, str] = {
    "generations": "generations",
    "failed": "failed rollouts",
    "others": "other rollouts",
    "proofs": "proofs",
    "pauses": "pauses",
    "redrives": "redrives",
}


def timeline_moments(
    state: State,
    *,
    before: int | None = None,
    most: int | None = None,
    pipeline: str = "",
    kind: str = "",
) -> tuple[Moment, ...]:
    """Lists the entries of the timeline, newest first.

    `before` selects the entries with a lower number, `most` is the maximum number of entries,
    `pipeline` selects the entries of one pipeline, and `kind` the entries of one kind of `KINDS`.
    """
    found = [
        *_generation_moments(state),
        *_rollout_moments(state),
        *(_proof_moment(each) for each in proof_records(state)),
        *_service_moments(state),
    ]
    return tuple(
        sorted(
            (
                each
                for each in found
                if (before is None or each.number < before)
                and (not pipeline or pipeline in each.pipelines)
                and (not kind or kind == each.kind)
            ),
            key=lambda each: -each.number,
        )
    )[:most]


def undos_to(state: State, generation: int) -> tuple[UndoOffer, ...]:
    """Lists an undo for each kept build that served in a generation and does not serve now. Pure.

    An undo may be impossible for now.
    """
    offers = (undo_offer(state, name, generation) for name in serving_in(state, generation))
    return tuple(each for each in offers if each is not None)


def _generation_moments(state: State) -> Iterator[Moment]:
    # The rollout by which each pipeline serves now: the last that has switched the pipeline.
    serving = {
        each.receipt.pipeline: each.rollout
        for record in state.served
        if isinstance(record.event, GenerationMade)
        for each in record.event.switched
        if each.receipt.pipeline in state.serving
    }
    for record in state.served:
        if not isinstance(record.event, GenerationMade):
            continue
        switches = tuple(
            _switch_of(
                state,
                state.rollout(each.rollout),
                each.receipt,
                now=serving.get(each.receipt.pipeline) == each.rollout,
            )
            for each in record.event.switched
        )
        retired = record.event if isinstance(record.event, PipelineRetired) else None
        yield Moment(
            record.number,
            record.at,
            # Of a switch, whoever asked for it, and not the supervisor that made it.
            ", ".join(dict.fromkeys(each.rollout.asked_by for each in switches)) or record.by,
            "ok",
            record.event.generation,
            switches,
            detail="" if retired is None else retired_text(retired),
            now=record.event.generation == state.generation
            if retired is not None
            else any(each.now for each in switches),
            pipelines=tuple(each.pipeline for each in switches)
            if retired is None
            else (retired.pipeline,),
        )


def _switch_of(state: State, rollout: Rollout, receipt: Receipt, *, now: bool) -> Switch:
    what = (
        "its first build"
        if receipt.first
        else "; ".join((*rollout.given_reasons, *(receipt.reasons or rollout.reasons)))
        or ("switch" if rollout.switch else "replay")
    )
    return Switch(
        rollout,
        receipt.pipeline,
        receipt.build,
        receipt.version,
        receipt.live_build,
        None if receipt.live_build is None else state.versions[receipt.live_build],
        what,
        now,
    )


def _rollout_moments(state: State) -> Iterator[Moment]:
    for rollout in state.rollouts:
        if rollout.phase is not Phase.SERVED:
            yield Moment(
                rollout.id,
                rollout.at,
                rollout.by,
                rollout_health(rollout).tone,
                rollout=rollout,
                detail=rollout.reason,
                pipelines=(rollout.pipeline,),
            )


def _service_moments(state: State) -> Iterator[Moment]:
    for record in state.service:
        match record.event:
            case Paused(pipeline=name) | Resumed(pipeline=name) as event:
                detail = f"pipeline {name} was {event.kind}"
            case RedriveAsked(pipeline=name) as event:
                detail = f"redrive of {redrive_text(event)} for pipeline {name}"
            case _:
                continue
        yield Moment(
            record.number,
            record.at,
            record.by,
            "unknown",
            detail=detail,
            pipelines=(name,),
            is_redrive=isinstance(record.event, RedriveAsked),
        )


def _proof_moment(kept: ProofRecord) -> Moment:
    record: JournalRecord = kept.record
    return Moment(
        record.number,
        record.at,
        record.by,
        "ok" if kept.found.equal else "bad",
        proof=kept,
        detail=proof_line(kept.found),
        pipelines=(kept.found.pipeline,),
    )
