"""Tests the law of slices on a sample of the log, before a version is replayed.

The law says that the rows do not depend on how the log is cut into slices. If code breaks the law,
the rows of its live tables differ from the rows that a replay would compute, and no verification at
one frontier would find the difference. The sample contains records from the beginning, the middle
and the end of each topic. A child process runs the test (kappa/engine/children/law_program.py). If
the replay has large slices, the test also uses large slices.

The file `cache/law/<version>.json` records on how many records a version was tested. A version is
tested only once, unless a larger sample is available at a later deploy. The test takes at most
`verify.law_seconds`. Each pipeline gets a share of that time; when the share is used up, the test
of the pipeline is stopped. A test that did not finish is repeated at the next deploy.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from kappa.base.errors import VerificationFailed
from kappa.base.settings import Settings
from kappa.base.units import count_of
from kappa.code.spark_child import ask_program
from kappa.kafka.reader import Record
from kappa.replay.rollout.plan.log_sample import SampledLog, sample_records
from kappa.replay.rollout.plan.plan import Plan, PlanStep
from kappa.state.documents import cached_json
from kappa.state.store import Store

_FORMAT = 1
_MOST_BYTES = 4 << 20
# New slices begin only within this part of a pipeline's share; the last slice may take the rest.
_BEGINS_WITHIN = 0.8


def ensure_lawful(
    settings: Settings,
    store: Store,
    log: SampledLog,
    plan: Plan,
    *,
    say: Callable[[str], None] = lambda _line: None,
    show: Callable[[str], None] = lambda _line: None,
) -> None:
    """Raises VerificationFailed if the rows of a replayed pipeline depend on how slices are cut.

    A pipeline is not tested if the operator has accepted nondeterministic code in it, because such
    a pipeline cannot satisfy the law. `show` is called at the beginning of each slow step, with a
    description of the step. `say` is called with a line about how much was tested.
    """
    steps = {
        step.pipeline: step
        for step in plan.steps
        if step.replays and settings.verify.law_records > 0
    }
    if steps:
        show("reads a sample of the topics")
    records = {
        name: list(_sample_records(log, step, settings.verify.law_records))
        for name, step in steps.items()
        if step.declared is not None and not step.declared.doubtful
    }
    tried = {
        name: step.declared.module
        for name, step in steps.items()
        if step.declared is not None
        and len(records.get(name, ())) > _tried_on(store, step, large=_is_large(settings, step))
    }
    if not tried:
        return
    seconds = settings.verify.law_seconds
    budget = _Budget(seconds)

    def cut(name: str, last: str | None) -> Mapping[str, Any]:
        if last is None:
            return {"tried": 0, "of": None}
        return {
            "message": f"pipeline {name} ended the process that held it to the law of slices: "
            f"{last}",
            "hint": "try fewer records: verify.law_records in kappa.toml; 0 for none",
        }

    answers = ask_program(
        settings,
        settings.project,
        "kappa.engine.children.law_program",
        tried,
        seconds=budget.share,
        cut=cut,
        say=show,
        more=lambda: {
            "seconds": budget.left() * _BEGINS_WITHIN,
            "root": settings.root,
            "by_spark": [name for name in tried if _is_large(settings, steps[name])],
            "declared": {name: _declared_digest(steps[name]) for name in tried},
            # Without headers: offsets differ in a sample, so a redriven record is tried as any
            # other record.
            "records": {
                name: [
                    (
                        each.topic,
                        each.partition,
                        each.timestamp_ms,
                        _base64_text(each.key),
                        _base64_text(each.value),
                    )
                    for each in records[name]
                ]
                for name in tried
            },
        },
    )
    for name in tried:
        answer = answers[name]
        if "message" in answer:
            raise VerificationFailed(answer["message"], hint=answer["hint"])
        over = f"the time is over (verify.law_seconds: {seconds:g})"
        if answer["of"] is None:
            none = "no way to cut records into slices was tried to its end"
            say(f"law of slices: {name}: {none}; {over}")
            continue
        covered = (
            f"{name}: {count_of(len(records[name]), 'record')} give the same rows in "
            f"{answer['tried']} of {count_of(answer['of'], 'way')} to cut them"
        )
        if answer["tried"] == answer["of"]:
            say(f"law of slices: {covered}, {answer['seconds']:.0f} s")
            store.put_json(
                _cache_name(steps[name]),
                {
                    "format": _FORMAT,
                    "records": len(records[name]),
                    "large": _is_large(settings, steps[name]),
                },
            )
        else:
            say(f"law of slices: {covered}; {over}")


class _Budget:
    """The time that is left for testing the law of slices.

    Each pipeline gets a share of the time when its own test begins. Time that a pipeline does not
    use is divided among the later pipelines. The time in which Spark starts does not count.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._began: float | None = None

    def left(self) -> float:
        """Returns the seconds that remain for all tests.

        Time counts only while a pipeline is tested.
        """
        if self._began is not None:
            self._left = max(0.0, self._left - (time.monotonic() - self._began))
            self._began = None
        return self._left

    def share(self, pipelines: int) -> float:
        """Returns the share, in seconds, of the pipeline whose test begins now.

        `pipelines` is the number of pipelines that are not tested yet, including this one.
        """
        share = self.left() / pipelines
        self._began = time.monotonic()
        return share


def _is_large(settings: Settings, step: PlanStep) -> bool:
    """Returns True if the replay has slices that are too large to be computed without Spark."""
    return step.records > settings.engine.short_records


def _tried_on(store: Store, step: PlanStep, *, large: bool) -> int:
    """Returns the number of records on which the version of a step has already been tested.

    With `large`, returns 0 if the test did not use large slices.
    """
    kept = cached_json(store, _cache_name(step)) or {}
    return int(kept.get("records", 0)) if kept.get("large", True) or not large else 0


def _sample_records(log: SampledLog, step: PlanStep, at_most: int) -> Iterator[Record]:
    """Yields records from the beginning, middle and end of each partition, in order of offsets.

    From each topic, at most 4 MiB of keys and values are included.
    """
    for topic in () if step.declared is None else step.declared.pipeline.topics:
        taken = 0
        for _, record in sample_records(
            log, log.beginning([topic.name]), log.end([topic.name]), at_most
        ):
            taken += len(record.key or b"") + len(record.value or b"")
            # One topic's large records leave room for another's.
            if taken > _MOST_BYTES:
                break
            yield record


def _declared_digest(step: PlanStep) -> str:
    """Returns the digest of a pipeline's declared topics and tables."""
    if step.declared is None:
        return ""
    topics = [
        f"{name} {digest}"
        for name, digest in sorted(step.declared.parts.items())
        if name.startswith("topic ")
    ]
    tables = msgspec.json.encode(step.declared.tables)
    return hashlib.sha256("\n".join(topics).encode() + tables).hexdigest()


def _cache_name(step: PlanStep) -> str:
    return f"cache/law/{step.version}.json"


def _base64_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
