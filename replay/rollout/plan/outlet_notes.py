"""Notes of a plan on sinks and alerts: what a switch sends, and who reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kappa.base.units import count_of
from kappa.replay.rollout.plan.circles import topic_uses
from kappa.replay.rollout.plan.observed import Declared, Observed
from kappa.replay.rollout.plan.plan import Change, PlanStep
from kappa.state.build import Birth


def with_outlets(observed: Observed, step: PlanStep) -> PlanStep:
    """Returns a step with its notes on sinks and alerts, if it does something."""
    if not step.acts:
        return step
    born = None if step.serving is None else observed.births[step.serving]
    declared = observed.declared[step.pipeline]
    found = (
        *_sinks(observed, step, declared, born),
        *_alerts(declared, born),
        *_readers(observed, declared),
    )
    return replace(step, notes=(*step.notes, *found))


def _sinks(
    observed: Observed, step: PlanStep, declared: Declared, born: Birth | None
) -> Iterator[str]:
    sinks = {} if born is None else {sink.topic: sink for sink in born.sinks}
    for sink in declared.pipeline.sinks:
        before = sinks.pop(sink.name, None)
        if before is None:
            rows = observed.rows.get(sink.name)
            counted = "" if rows is None else f", {count_of(rows, 'row')} now,"
            yield f"sink {sink.name} is new: the snapshot of {sink.of}{counted} is sent"
        elif before != sink.birth:
            yield f"sink {sink.name} is another: what differs from its topic is sent"
        elif step.replays or step.change is Change.KEPT:
            yield f"sink {sink.name}: what differs in {sink.of} is sent when it serves"
    for topic in sinks:
        yield f"sink {topic} ends: its topic keeps what it has"


def _alerts(declared: Declared, born: Birth | None) -> Iterator[str]:
    before = set() if born is None else {alert.name for alert in born.alerts}
    after = {alert.name for alert in declared.pipeline.alerts}
    for name in sorted(after - before):
        yield f"alert {name} is new: it begins with the first change after the switch"
    for name in sorted(before - after):
        yield f"alert {name} ends"


def _readers(observed: Observed, declared: Declared) -> Iterator[str]:
    """Yields the pipelines that read what a pipeline's sinks send."""
    uses = topic_uses(observed)
    for sink in declared.pipeline.sinks:
        readers = sorted(name for name, use in uses.items() if sink.name in use.reads)
        if readers:
            yield (
                f"pipeline{'' if len(readers) == 1 else 's'} {', '.join(readers)} read"
                f"{'s' if len(readers) == 1 else ''} sink {sink.name}: what is sent changes"
                f" {'its' if len(readers) == 1 else 'their'} tables too"
            )
