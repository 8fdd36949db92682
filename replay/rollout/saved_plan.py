"""A plan in a file: saved by `kappa plan --out`, applied by `kappa deploy --plan`.

It is applied with no question, and refused if stale. The file has the plan as `-o json` shows it,
and its ground. A deploy plans again and compares grounds; what moved is named.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from kappa.base.clock import now
from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.replay.rollout.ground import Ground, PipelineGround, TopicGround, ground_of, moved
from kappa.replay.rollout.plan.finding import Accepting
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.observed import Observed
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.plan.plan_text import plan_document
from kappa.state.journal.journal import whoami

_FORMAT = 1
# Of a plan for several pipelines, which format 1 cannot name.
_FORMAT_OF_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A saved plan: its pipelines (empty: all), what it lets through, and its ground."""

    only: tuple[str, ...]
    accepting: Accepting
    ground: Ground
    at: str
    by: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a saved plan.

        Raises UsageError if the file is none, and Damaged if it was changed since.
        """
        hint = "make one with: kappa plan --out FILE"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
        except ValueError as error:
            raise UsageError(f"{path} is no saved plan: it is no JSON", hint=hint) from error
        if not isinstance(document, dict) or "hash" not in document or "ground" not in document:
            raise UsageError(f"{path} is no saved plan", hint=hint)
        if document.get("format") not in {_FORMAT, _FORMAT_OF_SEVERAL}:
            raise UsageError(
                f"{path} is a saved plan of format {document.get('format')}, "
                f"and this Kappa reads formats {_FORMAT} and {_FORMAT_OF_SEVERAL}",
                hint="plan again: kappa plan --out FILE",
            )
        if document["hash"] != _hash(document):
            raise Damaged(
                f"{path} was changed after it was saved", hint="plan again: kappa plan --out FILE"
            )
        ground = document["ground"]
        return cls(
            only=_names(document["only"]),
            accepting=Accepting(
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
        """Returns the same plan, made on what is observed now.

        Raises Conflict, with what moved, if its ground is another by now.
        """
        gone = [name for name in self.only if name not in observed.names]
        found = tuple(f"code: pipeline {name} was taken away since" for name in gone)
        if not found:
            plan = make_plan(observed, only=self.only, accepting=self.accepting)
            found = tuple(moved(self.ground, ground_of(plan, observed)))
            if not found:
                return plan
        raise Conflict(
            f"{path} is stale, it was made at {self.at} by {self.by}: {'; '.join(found)}",
            hint=f"plan again: kappa plan --out {path}",
        )


def save_plan(
    path: Path, plan: Plan, observed: Observed, *, only: Sequence[str], accepting: Accepting
) -> None:
    """Puts a plan into a file, whole, in place of an earlier one.

    Raises UsageError if it cannot be written.
    """
    document = {
        "format": _FORMAT if len(only) < 2 else _FORMAT_OF_SEVERAL,
        "at": now(),
        "by": whoami(),
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
            json.dumps({**document, "hash": _hash(document)}, indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="give --out a file in a folder that is there",
        ) from error


def _names(only: str | list[str] | None) -> tuple[str, ...]:
    """Returns the names of a saved plan: format 1 has one or none, format 2 a list."""
    return () if only is None else (only,) if isinstance(only, str) else tuple(only)


def _hash(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of all of a document but its own hash."""
    kept = {name: value for name, value in document.items() if name != "hash"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
