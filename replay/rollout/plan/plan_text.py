"""Formats a plan as text, as rows, and as the JSON of `-o json` and of saved plans. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from kappa.replay.rollout.plan.code_diff import PartDiff
from kappa.replay.rollout.plan.cost import Cost
from kappa.replay.rollout.plan.plan import Plan, PlanStep, Refusal
from kappa.serving.query.render import Listing


def plan_text(plan: Plan) -> str:
    """Formats the plan for display: a line per step, with the details of the step below.

    The details are changes, effects on readers, costs, and refusals.
    """
    lines = []
    for step in plan.steps:
        lines.append(step.text)
        lines.extend(f"  {line}" for line in _detail_lines(step))
        for refusal in (each for each in plan.refusals if each.pipeline == step.pipeline):
            lines.append(f"  refused: {refusal.message}")
            lines.append(f"    {refusal.hint}")
    in_files = [each for each in plan.refusals if each.in_files]
    for refusal in () if plan.is_error else in_files:
        lines.append(f"{refusal.pipeline}: refused: {refusal.message}")
        lines += [f"  {refusal.hint}"] if refusal.hint else []
    lines.extend(f"note: {note}" for note in plan.notes)
    if not plan.has_changes and not in_files:
        lines.append("nothing to deploy")
    return "".join(f"{line}\n" for line in lines)


def plan_listing(plan: Plan) -> Listing:
    """Returns the plan as a listing, with one row per step."""
    columns = (
        "pipeline",
        "change",
        "version",
        "serving",
        "build",
        "records",
        "reasons",
        "readers",
        "accepted",
        "text",
    )
    rows = (
        (
            step.pipeline,
            str(step.change),
            step.version,
            step.serving,
            step.build,
            step.records,
            step.reasons,
            [each.text for each in step.readers],
            step.accepted,
            step.text,
        )
        for step in plan.steps
    )
    return Listing(columns, tuple(rows))


def plan_document(plan: Plan) -> dict[str, Any]:
    """Returns the whole plan as a JSON document: generation, steps, refusals and notes."""
    return {
        "generation": plan.generation,
        "journal": plan.looked_at,
        "has_changes": plan.has_changes,
        "steps": [_step_document(step) for step in plan.steps],
        "refusals": [_refusal_document(refusal) for refusal in plan.refusals],
        "notes": list(plan.notes),
    }


def _detail_lines(step: PlanStep) -> Iterator[str]:
    for diff in step.diffs:
        yield from _diff_lines(diff)
    yield from (
        f"readers: {change.text}{' (breaking)' if change.breaking else ''}"
        for change in step.readers
    )
    yield from (f"events: {change}" for change in step.events)
    if step.cost is not None:
        yield f"cost: {step.cost.text}"
    yield from (f"sampled: {sample.text}" for sample in step.samples)
    yield from (f"warning: {warning}" for warning in step.warnings)
    yield from (f"note: {note}" for note in step.notes)
    yield from (f"accepted: {accepted}" for accepted in step.accepted)


def _diff_lines(diff: PartDiff) -> Iterator[str]:
    yield f"{diff.what}:" if diff.lines else f"{diff.what}: what it was is not recorded"
    for number, line in enumerate(diff.lines):
        if not line.startswith("@@"):
            yield f"  {line}"
        elif number:
            # The line numbers count lines without comments, and would mislead.
            yield "  ..."


def _step_document(step: PlanStep) -> dict[str, Any]:
    return {
        "pipeline": step.pipeline,
        "change": str(step.change),
        "version": step.version,
        "serving": step.serving,
        "build": step.build,
        "records": step.records,
        "reasons": list(step.reasons),
        "diffs": [
            {
                "part": diff.part,
                "what": diff.what,
                "diff": "".join(f"{line}\n" for line in diff.lines) or None,
            }
            for diff in step.diffs
        ],
        "readers": [{**asdict(change), "effect": str(change.effect)} for change in step.readers],
        "events": list(step.events),
        "cost": None if step.cost is None else _cost_document(step.cost),
        "samples": [asdict(sample) for sample in step.samples],
        "warnings": list(step.warnings),
        "notes": list(step.notes),
        "accepted": list(step.accepted),
        "topics": [to_builtins(topic) for topic in step.topics],
        "origin": step.origin.plain(),
        "base": None if step.branch is None else to_builtins(step.branch.base),
        "tables_of": step.tables_of,
        "rollout": None if step.rollout is None else step.rollout.number,
        "text": step.text,
    }


def _cost_document(cost: Cost) -> dict[str, Any]:
    return {
        "records": cost.records,
        "bytes": cost.bytes,
        "partitions": [asdict(each) for each in cost.partitions],
        "disk_needed": cost.disk_needed,
        "disk_free": cost.disk_free,
        "records_per_second": cost.rate,
        "ingested_per_second": cost.ingest,
        "seconds": cost.seconds,
        "law_seconds": cost.law_seconds,
    }


def _refusal_document(refusal: Refusal) -> dict[str, Any]:
    return {
        "pipeline": refusal.pipeline,
        "message": refusal.message,
        "hint": refusal.hint,
        "name": refusal.name or None,
        "conflict": refusal.conflict,
    }
