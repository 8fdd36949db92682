"""What a reader may hold against the platform: errors, mixed answers, backward answers. Pure.

An answer is mixed where its tables, which are folded from the same slices, disagree with one another or with what the
frontier says was folded, or hold rows that the version which serves cannot have made; it is backward where its generation,
or any partition's offset, is less than one the same reader has seen before. Read next: reader.py, which asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kappa.state.offsets import Offsets

# The first few are told in full; the rest are counted.
_TOLD = 5


@dataclass(frozen=True, slots=True)
class Observation:
    """One answer: flights, and the cancelled of them, as several tables of it count them; rejects as the table and as the frontier do.

    `foreign` are the rows that only the other version can have made.
    """

    at: float
    generation: int
    build: str
    offsets: Offsets
    flights: Mapping[str, int]
    cancelled: Mapping[str, int]
    rejects: Mapping[str, int]
    foreign: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one reader has counted so far; `told` says in words what was wrong, the first few times."""

    queries: int = 0
    errors: int = 0
    mixed: int = 0
    backward: int = 0
    switches: int = 0
    told: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """True where answers came, and there was nothing wrong with any of them."""
        return self.queries > 0 and not (self.errors or self.mixed or self.backward)


def after_answer(verdict: Verdict, before: Observation | None, now: Observation) -> Verdict:
    """The verdict once `now` has been seen; `before` is the same reader's answer before it."""
    mixed, backward = _mixed(now), _backward(before, now)
    switched = before is not None and before.generation != now.generation
    return replace(
        verdict,
        queries=verdict.queries + 1,
        mixed=verdict.mixed + bool(mixed),
        backward=verdict.backward + bool(backward),
        switches=verdict.switches + switched,
        told=(*verdict.told, *mixed, *backward)[:_TOLD],
    )


def after_error(verdict: Verdict, error: str) -> Verdict:
    """The verdict once a query has come back with an error instead of an answer."""
    return replace(
        verdict,
        queries=verdict.queries + 1,
        errors=verdict.errors + 1,
        told=(*verdict.told, error)[:_TOLD],
    )


def _mixed(now: Observation) -> tuple[str, ...]:
    counted = (
        ("flights", now.flights),
        ("cancelled flights", now.cancelled),
        ("rejects", now.rejects),
    )
    found = [
        f"generation {now.generation} counts {what} as {dict(counts)}"
        for what, counts in counted
        if len(set(counts.values())) > 1
    ]
    return (
        *found,
        *(
            [
                f"generation {now.generation} has {now.foreign} rows that its version of the pipeline cannot have made"
            ]
            if now.foreign
            else []
        ),
    )


def _backward(before: Observation | None, now: Observation) -> tuple[str, ...]:
    if before is None:
        return ()
    if now.generation < before.generation:
        return (f"generation {now.generation} came after generation {before.generation}",)
    if not now.offsets.covers(before.offsets):
        return (
            f"offsets {now.offsets} of {now.build} came after {before.offsets} of {before.build}",
        )
    return ()
