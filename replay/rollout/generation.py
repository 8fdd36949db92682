"""Collects all facts about one generation: operator, time, reason, code and receipts.

All functions are pure, except `code_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from kappa.base.clock import time_text
from kappa.base.errors import UsageError
from kappa.base.units import duration
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff_listing import check_text
from kappa.serving.query.render import Listing
from kappa.state.build import Birth, folder_of_build
from kappa.state.journal.events import GenerationMade, PipelineRetired, Receipt
from kappa.state.journal.journal import JournalRecord, as_document
from kappa.state.offsets import Offsets
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class BuildCode:
    """The code of a build: the address of its folder, and the hash of its files.

    `there` is True if the folder still contains files.
    """

    folder: str
    sha256: str
    there: bool


@dataclass(frozen=True, slots=True)
class GenerationDetails:
    """A generation: its record, the rollouts that it switched, and the builds that it serves.

    If the generation only retired a pipeline, `switched` is empty. `births` and `codes` have an
    entry for each build in the serving map. `sent` maps the id of a rollout to lines about the
    changes that were sent at the switch, one line per outlet. `previous` is the serving map of the
    previous generation.
    """

    record: JournalRecord
    served: GenerationMade
    switched: tuple[tuple[Rollout, Receipt], ...]
    births: Mapping[str, Birth]
    codes: Mapping[str, BuildCode]
    sent: Mapping[int, tuple[str, ...]]
    previous: Mapping[str, str]


def serving_in(state: State, generation: int) -> Mapping[str, str]:
    """Returns the serving map (pipeline -> build) of a generation.

    Raises UsageError if no generation has that number.
    """
    return _generation_record(state, generation)[1].serving


def _generation_record(state: State, generation: int) -> tuple[JournalRecord, GenerationMade]:
    for record in state.served:
        if isinstance(record.event, GenerationMade) and record.event.generation == generation:
            return record, record.event
    raise UsageError(
        f"there is no generation {generation}",
        hint=f"generations are numbered 1 to {state.generation}: kappa history"
        if state.generation
        else "nothing is served yet: kappa deploy",
    )


def generation_details(
    state: State,
    generation: int,
    births: Mapping[str, Birth],
    codes: Mapping[str, BuildCode],
    sent: Mapping[int, tuple[str, ...]],
) -> GenerationDetails:
    """Collects all facts about a generation.

    `births` and `codes` have an entry for each build in the generation's serving map. `sent` maps
    the id of a rollout to lines about the changes that were sent at the switch. Raises UsageError
    if no generation has that number.
    """
    record, served = _generation_record(state, generation)
    before = next(
        (
            each.event.serving
            for each in state.served
            if isinstance(each.event, GenerationMade) and each.event.generation == generation - 1
        ),
        {},
    )
    switched = tuple((state.rollout(each.rollout), each.receipt) for each in served.switched)
    return GenerationDetails(record, served, switched, births, codes, sent, before)


def code_of(store: Store, birth: Birth) -> BuildCode:
    """Returns the folder and hash of a build's code, and whether the folder still has files."""
    code = f"{folder_of_build(birth.build)}/code"
    return BuildCode(store.address(code), birth.code_sha256, bool(store.names(code)))


def show_listing(found: GenerationDetails) -> Listing:
    """Returns a listing of offsets with a row per switched pipeline and partition.

    Each row contains three offsets: where the build began to read, what readers saw before the
    switch, and what readers saw after the switch.
    """
    rows = (
        row
        for _, receipt in found.switched
        for row in _offset_rows(receipt, found.births[receipt.build].origin_offsets)
    )
    return Listing(("pipeline", "topic", "partition", "origin", "before", "after"), tuple(rows))


def _offset_rows(receipt: Receipt, origin: Offsets) -> Iterator[tuple[Any, ...]]:
    after, live = receipt.candidate_offsets, receipt.live_offsets
    for topic, partition, _ in origin.highest_with(after).highest_with(live or Offsets()).items():
        yield (
            receipt.pipeline,
            topic,
            partition,
            origin.at(topic, partition),
            None if live is None else live.at(topic, partition),
            after.at(topic, partition),
        )


def show_text(found: GenerationDetails) -> str:
    """Formats a generation for display, with one fact per line. Offsets are not included."""
    lines = [
        (
            f"generation {found.served.generation}, served {time_text(found.record.at)} by "
            f"{found.record.by}"
        ),
        *([f"reason: {found.record.reason}"] if found.record.reason else []),
        *(
            line
            for rollout, receipt in found.switched
            for line in (
                *_switch_lines(rollout, receipt, found.served.generation),
                *(f"sent: {each}" for each in found.sent.get(rollout.id, ())),
            )
        ),
        *([retired_text(found.served)] if isinstance(found.served, PipelineRetired) else []),
        *(
            _build_line(found, pipeline, build)
            for pipeline, build in sorted(found.served.serving.items())
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def retired_text(retired: PipelineRetired) -> str:
    """Formats a retirement as one line: pipeline, tables, build, and the length of the soak."""
    return (
        f"pipeline {retired.pipeline} was retired: {', '.join(retired.names)} left with build "
        f"{retired.build}, which was kept for {duration(retired.kept_seconds)}"
    )


def show_document(found: GenerationDetails) -> dict[str, Any]:
    """Returns all facts about a generation as a JSON document.

    The field `record` is the journal's record, unchanged.
    """
    return {
        "generation": found.served.generation,
        "previous_generation": found.served.generation - 1 or None,
        "served_at": found.record.at,
        "served_by": found.record.by,
        "switched": [
            {**_switch_document(rollout, receipt), "sent": list(found.sent.get(rollout.id, ()))}
            for rollout, receipt in found.switched
        ],
        "offsets": show_listing(found).row_objects(),
        "builds": {
            pipeline: {
                "build": build,
                "version": found.births[build].version,
                "born_at": found.births[build].born_at,
                "born_by": found.births[build].by,
                "previous_build": found.previous.get(pipeline),
                "code": {
                    "folder": found.codes[build].folder,
                    "sha256": found.codes[build].sha256,
                    "there": found.codes[build].there,
                },
            }
            for pipeline, build in found.served.serving.items()
        },
        "record": as_document(found.record),
    }


def _switch_lines(rollout: Rollout, receipt: Receipt, generation: int) -> Iterator[str]:
    yes = f", promoted by {rollout.asked_by}" if rollout.asked_by != rollout.by else ""
    yield (
        f"rollout {rollout.number}, asked for {time_text(rollout.at)} by {rollout.by}{yes}: "
        f"{'; '.join((*rollout.given_reasons, *receipt.reasons)) or 'no reason was given'}"
    )
    instead = (
        ", its first"
        if receipt.first
        else f" instead of {receipt.live_build}, which generation {generation - 1} served"
        if receipt.live_build
        else ", after it had been retired"
    )
    yield f"{receipt.pipeline}: build {receipt.build} (version {receipt.version}){instead}"
    if receipt.base is not None:
        yield f"it is {receipt.base}: up to there its rows are that build's"
    if receipt.tables_of is not None:
        yield f"it serves the tables of build {receipt.tables_of}: nothing was replayed"
    yield from (f"let through: {each}" for each in rollout.accepted)
    yield from (
        f"check of {check.table}: {check.condition}: {check_text(check)}"
        for check in receipt.checks
    )


def _switch_document(rollout: Rollout, receipt: Receipt) -> dict[str, Any]:
    return {
        "rollout": rollout.number,
        "asked_at": rollout.at,
        "asked_by": rollout.by,
        "promoted_by": rollout.asked_by,
        "pipeline": receipt.pipeline,
        "build": receipt.build,
        "version": receipt.version,
        "given_reasons": rollout.given_reasons,
        "reasons": receipt.reasons,
        "accepted": rollout.accepted,
        "first": receipt.first,
        "base": None if receipt.base is None else to_builtins(receipt.base),
        "tables_of": receipt.tables_of,
        "checks": [
            {
                "table": check.table,
                "condition": check.condition,
                "rows": check.rows,
                "failing": check.failing,
                "passed": check.passed,
            }
            for check in receipt.checks
        ],
    }


def _build_line(found: GenerationDetails, pipeline: str, build: str) -> str:
    birth, code = found.births[build], found.codes[build]
    where = code.folder if code.there else "its code is not kept any more"
    return (
        f"{pipeline} was served by build {build} (version {birth.version}, born "
        f"{time_text(birth.born_at)}): {where}, sha256 {code.sha256[:16]}"
    )
