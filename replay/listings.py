"""Plan, status and history as rows under columns, and as the documents that `-o json` promises. Pure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from replay.history import Chapter
from replay.rollout import Phase
from serving.render import Listing

if TYPE_CHECKING:
    # Each comes with what it takes to plan, to ask a broker, to run jobs; a history is told without.
    from replay.plan import Plan
    from replay.status import BuildStatus, Status
    from replay.supervisor import Running


def plan_text(plan: Plan) -> str:
    """The plan for people: a line per step, what its readers will miss, and what refuses it."""
    lines = []
    for step in plan.steps:
        lines.append(step.text)
        lines.extend(f"  readers: {missed}" for missed in step.readers)
        lines.extend(f"  refused: {refusal.message}" for refusal in plan.refusals if refusal.pipeline == step.pipeline)
    if not plan.has_changes:
        lines.append("nothing to deploy")
    return "".join(f"{line}\n" for line in lines)


def plan_listing(plan: Plan) -> Listing:
    """A row per step."""
    columns = ("pipeline", "change", "version", "serving", "build", "records", "reasons", "readers", "text")
    rows = ((step.pipeline, str(step.change), step.version, step.serving, step.build, step.records, step.reasons, step.readers, step.text) for step in plan.steps)
    return Listing(columns, tuple(rows))


def plan_document(plan: Plan) -> dict[str, Any]:
    """All of it: the generation it is for, whether it would change anything, steps and refusals."""
    return {
        "generation": plan.generation,
        "has_changes": plan.has_changes,
        "steps": plan_listing(plan).objects(),
        "refusals": [{"pipeline": each.pipeline, "message": each.message, "hint": each.hint} for each in plan.refusals],
    }


def status_listing(status: Status, now: datetime) -> Listing:
    """A row per wanted build."""
    columns = ("pipeline", "role", "build", "version", "state", "folded", "behind", "age_seconds", "rejected", "offsets", "note")
    return Listing(columns, tuple(_build_row(build, now) for build in status.builds), wide=frozenset({"offsets"}))


def status_document(status: Status, running: Running | None, broker: str | None, now: datetime) -> dict[str, Any]:
    """All of it: what runs, the generation, and a row per wanted build."""
    return {
        "generation": status.generation,
        "supervisor": None if running is None else {"pid": running.pid, "started": running.started},
        "broker": {"bootstrap_servers": broker, "error": status.broker_error or None},
        "builds": status_listing(status, now).objects(),
    }


def status_heading(status: Status, running: Running | None, broker: str | None) -> str:
    """What runs, in a line."""
    supervisor = "kappa is not up: kappa up -d starts it" if running is None else f"kappa is up: process {running.pid} since {running.started}"
    kafka = status.broker_error or ("no broker is known" if broker is None else f"Kafka at {broker}")
    served = f"generation {status.generation}" if status.generation else "nothing is served yet: kappa deploy"
    return f"{supervisor}\n{kafka}\n{served}\n"


def history_listing(chapters: tuple[Chapter, ...]) -> Listing:
    """A row per rollout, oldest first; receipts in full are for machines."""
    columns = (
        "rollout",
        "generation",
        "at",
        "by",
        "pipeline",
        "build",
        "version",
        "what",
        "state",
        "why",
        "served_at",
        "live_build",
        "live_offsets",
        "candidate_offsets",
        "checks",
        "differences",
        "hint",
    )
    wide = frozenset({"served_at", "live_build", "live_offsets", "candidate_offsets", "checks", "differences", "hint"})
    return Listing(columns, tuple(_chapter_row(chapter) for chapter in chapters), wide=wide)


def _build_row(build: BuildStatus, now: datetime) -> tuple[Any, ...]:
    age = build.age_seconds(now)
    return (
        build.pipeline,
        build.role,
        build.build,
        build.version,
        _state(build),
        build.folded,
        build.lag,
        None if age is None else round(age, 1),
        build.rejected,
        build.offsets.plain(),
        build.stopped.message if build.stopped is not None else build.rollout.reason if build.rollout is not None else "",
    )


def _state(build: BuildStatus) -> str:
    if build.stopped is not None:
        return "stopped"
    if build.rollout is None:
        return "serving" if build.role == "live" else "kept"
    if build.rollout.phase is Phase.REPLAYING and build.lag is not None:
        return f"{build.rollout.phase} {100 * build.folded // max(1, build.folded + build.lag)} %"
    return str(build.rollout.phase)


def _chapter_row(chapter: Chapter) -> tuple[Any, ...]:
    rollout, receipt, served = chapter.rollout, chapter.receipt, chapter.served
    checks = () if rollout.verified is None else rollout.verified.checks
    differences = () if rollout.verified is None else rollout.verified.differences
    return (
        rollout.number,
        chapter.generation,
        rollout.at,
        rollout.by,
        rollout.pipeline,
        rollout.build,
        rollout.version,
        "switch" if rollout.switch else "replay",
        str(rollout.phase),
        "; ".join([*rollout.reasons, *([rollout.reason] if rollout.reason else [])]),
        None if served is None else served.at,
        None if receipt is None else receipt.live_build,
        None if receipt is None or receipt.live_offsets is None else receipt.live_offsets.plain(),
        None if receipt is None else receipt.candidate_offsets.plain(),
        [{**asdict(check), "passed": check.passed} for check in checks],
        [asdict(difference) for difference in differences],
        rollout.hint,
    )
