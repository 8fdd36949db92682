"""A reader's verdict about the platform: errors, mixed answers and backward answers. Pure.

All tables of an answer must be folded from the same slices. An answer is mixed if its tables
disagree with each other or with the frontier, or if it contains rows that the serving version
cannot have computed. An answer is backward if its generation, or the offset of any partition, is
lower than in an earlier answer to the same reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kappa.state.offsets import Offsets

# The first few are described in full; the rest are counted.
_KEPT_FAULTS = 5


@dataclass(frozen=True, slots=True)
class Observation:
    """An answer, with the counts that must be equal.

    Several tables count the flights and the cancelled flights; the rejects table and the frontier
    count the rejects. `foreign` is the number of rows that the serving version cannot have
    computed.
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
    """One reader's numbers of queries, errors, wrong answers and switches so far.

    `faults` describes the first few wrong answers.
    """

    queries: int = 0
    errors: int = 0
    mixed: int = 0
    backward: int = 0
    switches: int = 0
    faults: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Returns True if there were answers and none of them was wrong."""
        return self.queries > 0 and not (self.errors or self.mixed or self.backward)


def after_answer(verdict: Verdict, before: Observation | None, now: Observation) -> Verdict:
    """Returns the verdict after the answer `now`. `before` is the reader's previous answer."""
    mixed, backward = _mixed(now), _backward(before, now)
    switched = before is not None and before.generation != now.generation
    return replace(
        verdict,
        queries=verdict.queries + 1,
        mixed=verdict.mixed + bool(mixed),
        backward=verdict.backward + bool(backward),
        switches=verdict.switches + switched,
        faults=(*verdict.faults, *mixed, *backward)[:_KEPT_FAULTS],
    )


def after_error(verdict: Verdict, error: str) -> Verdict:
    """Returns the verdict after a query that ended with an error."""
    return replace(
        verdict,
        queries=verdict.queries + 1,
        errors=verdict.errors + 1,
        faults=(*verdict.faults, error)[:_KEPT_FAULTS],
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
    if now.foreign:
        found.append(
            f"generation {now.generation} has {now.foreign} rows "
            "that its version of the pipeline cannot have made"
        )
    return tuple(found)


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
