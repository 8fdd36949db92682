"""Validation: checks of each pipeline by the project's files, without broker and journal.

It covers declarations, keys, folds, columns, the SQL of views and checks, and determinism. What
only log or journal can refuse, a plan refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.settings import Settings
from kappa.state.store import Store
from replay.plan.make_plan import refuse_unknown
from replay.plan.plan import Refusal
from replay.preflight.declared import declare_each
from replay.preflight.finding import Accepting, flag
from replay.preflight.observed import Declared
from serving.query.render import Listing


@dataclass(frozen=True, slots=True)
class Validated:
    """One pipeline: its version, if its declaration holds, and what refuses it."""

    pipeline: str
    version: str | None
    refused: tuple[Refusal, ...] = ()


def validate(
    settings: Settings,
    store: Store,
    *,
    only: Collection[str] = (),
    accepting: Accepting | None = None,
) -> tuple[Validated, ...]:
    """Validates all pipelines, or `only` some, each on its own.

    Raises UsageError if `only` names none of the project, and DeclarationError if a file cannot
    be loaded at all.
    """
    names, found = declare_each(settings, store, only)
    refuse_unknown(only, names)
    return tuple(_validated(name, found[name], accepting or Accepting()) for name in sorted(found))


def ensure_valid(found: Collection[Validated]) -> None:
    """Raises UsageError, which names the pipelines that are refused, if there are any."""
    refused = [each.pipeline for each in found if each.refused]
    if refused:
        raise UsageError(f"{len(refused)} of {len(found)} pipelines refused: {', '.join(refused)}")


def validated_text(found: Collection[Validated]) -> str:
    """Returns a line for each pipeline, with its refusals and what to do below it."""
    lines = []
    for each in found:
        if not each.refused:
            lines.append(f"{each.pipeline}: valid (version {each.version})")
        for refused in each.refused:
            lines.append(f"{each.pipeline}: refused: {refused.message}")
            lines += [f"  {refused.hint}"] if refused.hint else []
    if not found:
        lines.append("no pipeline is declared: each is a file in pipelines/, beside kappa.toml")
    return "".join(f"{line}\n" for line in lines)


def validated_listing(found: Collection[Validated]) -> Listing:
    """Returns a row for each pipeline."""
    return Listing(
        ("pipeline", "version", "valid", "refused"),
        tuple(
            (
                each.pipeline,
                each.version,
                not each.refused,
                [refused.message for refused in each.refused],
            )
            for each in found
        ),
    )


def validated_document(found: Collection[Validated]) -> list[dict[str, Any]]:
    """Returns everything that was found, for machines."""
    return [
        {
            "pipeline": each.pipeline,
            "version": each.version,
            "valid": not each.refused,
            "refused": [
                {"message": refused.message, "hint": refused.hint} for refused in each.refused
            ],
        }
        for each in found
    ]


def _validated(name: str, found: Declared | DeclarationError, accepting: Accepting) -> Validated:
    if isinstance(found, DeclarationError):
        return Validated(name, None, (Refusal(name, found.message, found.hint),))
    return Validated(
        name,
        found.version,
        tuple(
            Refusal(
                name, each.message, f"{each.hint}; or let it through: {flag(each)}", name=each.name
            )
            for each in found.doubtful
            if accepting.lets_through(each) is None
        ),
    )
