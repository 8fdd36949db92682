"""Saves a plan in a file (`kappa plan --out`), and checks the file for `kappa deploy --plan`.

The file contains the plan in the form of `-o json`, and the plan's ground: the state of code,
journal and topics on which the plan is based. A deploy makes the plan again, and compares the
ground in the file with the present ground. If they differ, the plan is stale: the deploy is
refused, and the error names all differences. A log that has only grown is not a difference. If
nothing differs, the deploy does not ask the operator for confirmation.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from kappa.base.clock import now
from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.code.fingerprint import version_differences
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan, PlanStep
from kappa.replay.rollout.plan.plan_text import plan_document
from kappa.replay.rollout.rollout_numbers import build_in_words
from kappa.state.journal.journal import acting_user
from kappa.state.offsets import Offsets

_FORMAT = 1
# The format of a plan for several pipelines, which format 1 cannot name.
_FORMAT_OF_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A saved plan: its pipelines, the operator's allowances, and the ground.

    The ground is the state of code, journal and topics on which the plan is based. `only` are the
    planned pipelines; it is empty if all pipelines were planned. `at` is the time of the plan, and
    `by` is the user who saved the plan.
    """

    only: tuple[str, ...]
    accepting: Allowances
    ground: Ground
    at: str
    by: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a saved plan from a file.

        Raises UsageError if the file cannot be read or is not a saved plan, and Damaged if the file
        was changed after it was saved.
        """
        hint = "make one with: kappa plan --out FILE"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
        except ValueError as error:
            raise UsageError(f"{path} is not a saved plan: it is not JSON", hint=hint) from error
        if not isinstance(document, dict) or "hash" not in document or "ground" not in document:
            raise UsageError(f"{path} is not a saved plan", hint=hint)
        if document.get("format") not in {_FORMAT, _FORMAT_OF_SEVERAL}:
            raise UsageError(
                f"{path} is a saved plan of format {document.get('format')}, "
                f"and this Kappa reads formats {_FORMAT} and {_FORMAT_OF_SEVERAL}",
                hint="plan again: kappa plan --out FILE",
            )
        if document["hash"] != _document_hash(document):
            raise Damaged(
                f"{path} was changed after it was saved", hint="plan again: kappa plan --out FILE"
            )
        ground = document["ground"]
        return cls(
            only=_pipeline_names(document["only"]),
            accepting=Allowances(
                **{
                    **document["accepting"],
                    "before": tuple(document["accepting"].get("before", ())),
                }
            ),
            ground=Ground(
                journal=ground["journal"],
                generation=ground["generation"],
                pipelines={
                    name: PipelineGround(**{**each, "accepted": tuple(each["accepted"])})
                    for name, each in ground["pipelines"].items()
                },
                topics={name: TopicGround(**each) for name, each in ground["topics"].items()},
            ),
            at=document["at"],
            by=document["by"],
        )

    def plan_again(self, path: Path, observed: Observed) -> Plan:
        """Makes the same plan again from the present facts, and returns the plan.

        `path` is the path of the plan's file, for error messages. Raises Conflict, with all
        differences, if the code, the journal or the topics on which the plan is based have changed.
        """
        gone = [name for name in self.only if name not in observed.names]
        found = tuple(f"code: pipeline {name} was taken away since" for name in gone)
        if not found:
            plan = make_plan(observed, only=self.only, accepting=self.accepting)
            found = tuple(ground_changes(self.ground, ground_of(plan, observed)))
            if not found:
                return plan
        raise Conflict(
            f"{path} is stale, it was made at {self.at} by {self.by}: {'; '.join(found)}",
            hint=f"plan again: kappa plan --out {path}",
        )


def save_plan(
    path: Path, plan: Plan, observed: Observed, *, only: Sequence[str], accepting: Allowances
) -> None:
    """Writes a plan to a file. An existing file is replaced atomically.

    Raises UsageError if the file cannot be written.
    """
    document = {
        "format": _FORMAT if len(only) < 2 else _FORMAT_OF_SEVERAL,
        "at": now(),
        "by": acting_user(),
        "only": (*only, None)[0] if len(only) < 2 else list(only),
        "accepting": asdict(accepting),
        "ground": asdict(ground_of(plan, observed)),
        "plan": plan_document(plan),
    }
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="give --out a file in it")
    written = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        written.write_text(
            json.dumps({**document, "hash": _document_hash(document)}, indent=1, ensure_ascii=False)
            + "\n",
            encoding="utf-8",
        )
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="give --out a file in a folder that is there",
        ) from error


def _pipeline_names(only: str | list[str] | None) -> tuple[str, ...]:
    """Returns the pipelines of a saved plan, or () for all pipelines.

    `only` is one name or None in a file of format 1, and a list in a file of format 2.
    """
    return () if only is None else (only,) if isinstance(only, str) else tuple(only)


def _document_hash(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a document, computed without its field `hash`."""
    kept = {name: value for name, value in document.items() if name != "hash"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PipelineGround:
    """The facts about one pipeline on which a planned step is based: code and journal state."""

    change: str
    version: str
    parts: Mapping[str, str]
    serving: str | None
    idle: str | None
    rollout: int | None
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicGround:
    """The facts about a topic on which a plan is based.

    These are the topic's id, and the first offset (`begin`) and the end offset (`end`) of each
    partition. The end offset is the offset after the last record.
    """

    id: str
    partitions: int
    beginning: Mapping[str, int]
    end: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ground:
    """The state of code, journal and topics on which a plan is based.

    `journal` is the number of the journal's last record at planning. The keys of `topics` and
    `pipelines` are names of topics and pipelines.
    """

    journal: int
    generation: int
    pipelines: Mapping[str, PipelineGround]
    topics: Mapping[str, TopicGround]


def ground_of(plan: Plan, observed: Observed) -> Ground:
    """Returns the state of code, journal and topics on which a plan is based."""
    log = observed.log
    topics = {
        name: TopicGround(
            topic_id,
            log.partitions[name],
            _plain_offsets(log.beginning, name),
            _plain_offsets(log.end, name),
        )
        for name, topic_id in log.ids.items()
        if any(
            topic.name == name
            for step in plan.steps
            if step.pipeline in observed.declared
            for topic in observed.declared[step.pipeline].pipeline.topics
        )
    }
    return Ground(
        plan.looked_at,
        plan.generation,
        {step.pipeline: _pipeline_ground(step, observed) for step in plan.steps},
        topics,
    )


def ground_changes(then: Ground, now_: Ground) -> Iterator[str]:
    """Yields a sentence for each difference between the facts of a plan and the present facts.

    `then` contains the facts on which the plan is based. If nothing is yielded, the plan is still
    valid.
    """
    for name in sorted({*then.pipelines, *now_.pipelines}):
        yield from _pipeline_moved(
            name,
            then.pipelines.get(name),
            now_.pipelines.get(name),
            journal=(then.journal, now_.journal),
        )
    for name in sorted({*then.topics, *now_.topics}):
        yield from _topic_moved(name, then.topics.get(name), now_.topics.get(name))


def _pipeline_ground(step: PlanStep, observed: Observed) -> PipelineGround:
    declared = observed.declared.get(step.pipeline)
    return PipelineGround(
        change=str(step.change),
        version=step.version,
        parts={} if declared is None else declared.parts,
        serving=step.serving,
        idle=observed.state.idle.get(step.pipeline),
        rollout=None if step.rollout is None else step.rollout.number,
        accepted=step.accepted,
    )


def _pipeline_moved(
    name: str, then: PipelineGround | None, now_: PipelineGround | None, *, journal: tuple[int, int]
) -> Iterator[str]:
    if then is None or now_ is None:
        yield f"code: pipeline {name} was {'declared' if then is None else 'taken away'} since"
        return
    if then.version != now_.version:
        why = ", ".join(version_differences(then.parts, now_.parts))
        yield (
            f"code: pipeline {name} is version {now_.version} now, and was "
            f"{then.version}{f' ({why})' if why else ''}"
        )
    records = f"record {journal[0]} then, {journal[1]} now"
    if then.serving != now_.serving:
        yield (
            f"journal: pipeline {name} is served by {build_in_words(now_.serving)} now, and was by "
            f"{build_in_words(then.serving)} ({records})"
        )
    elif then.idle != now_.idle:
        yield (
            f"journal: {build_in_words(now_.idle)} is kept for pipeline {name} now, and was "
            f"{build_in_words(then.idle)} ({records})"
        )
    if then.rollout != now_.rollout:
        yield (
            f"journal: rollout {now_.rollout} of pipeline {name} is on its way ({records})"
            if now_.rollout
            else f"journal: rollout {then.rollout} of pipeline {name} has ended ({records})"
        )
    if then.accepted != now_.accepted:
        other = [
            *(f"now {each}" for each in now_.accepted if each not in then.accepted),
            *(f"no longer {each}" for each in then.accepted if each not in now_.accepted),
        ]
        yield f"what is let through for pipeline {name}: {', '.join(other)}"


def _topic_moved(name: str, then: TopicGround | None, now_: TopicGround | None) -> Iterator[str]:
    if then is None or now_ is None:
        yield f"topics: {name} was {'made' if then is None else 'deleted'} since"
    elif then.id != now_.id:
        yield f"topics: {name} was deleted and created again"
    elif then.partitions != now_.partitions:
        yield f"topics: {name} has {now_.partitions} partitions, and had {then.partitions}"
    else:
        for partition, offset in then.beginning.items():
            if now_.beginning.get(partition, offset) != offset:
                yield (
                    f"topics: {name} partition {partition} begins at offset "
                    f"{now_.beginning[partition]} now, and began at {offset}"
                )
        for partition, offset in then.end.items():
            if now_.end.get(partition, offset) < offset:
                yield (
                    f"topics: {name} partition {partition} ends at offset "
                    f"{now_.end[partition]} now, and ended at {offset}"
                )


def _plain_offsets(offsets: Offsets, topic: str) -> Mapping[str, int]:
    return offsets.plain().get(topic, {})
