"""Computes the cuts of a log into slices for a proof. Pure."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from kappa.base.errors import UsageError
from kappa.state.offsets import Offsets
from kappa.state.slices import Cuts, cut_slices, even_ends, random_ends

# In a random cut, every other slice is followed by a slice as small as in a quiet tail.
_SMALL = 50


@dataclass(frozen=True, slots=True)
class Cutting:
    """A way to cut the log: at random from a seed, evenly into `count` slices, or not at all.

    If `how` is "one", Spark reads and computes the whole log as a single batch job.
    """

    how: Literal["random", "even", "one"]
    count: int = 0
    seed: int | None = None


# Each slice is planned before the first is folded.
_NUMBER = re.compile(r"[1-9][0-9]{0,5}|1000000")


def parse_cutting(slices: str, seed: int | None) -> Cutting:
    """Parses the way to cut the log: `random`, `one`, or a number of slices.

    If `seed` is None, a new seed is drawn for a random cut. Raises UsageError for any other text,
    and if a seed is given for a way that is not random.
    """
    if slices == "random":
        return Cutting(
            "random", seed=random.SystemRandom().getrandbits(32) if seed is None else seed
        )
    if seed is not None:
        raise UsageError(
            f"a seed was given, and --slices {slices} needs none",
            hint="leave --seed out, or cut at random: --slices random",
        )
    if slices == "one":
        return Cutting("one")
    if _NUMBER.fullmatch(slices) is None:
        raise UsageError(
            f"--slices {slices!r} is not a way to cut the log",
            hint="say random, one, or how many slices, a million at most: --slices 20",
        )
    return Cutting("even", int(slices))


def cut_as(
    how: Cutting, start: Offsets, end: Offsets, *, slice_records: int, driver_rows: int
) -> Cuts:
    """Returns the ends of the slices, and the number of records up to which Spark is not used.

    If the cuts are random, Spark reads and computes at least the largest quarter of the slices, and
    no slice has more than `slice_records` records.
    """
    match how.how:
        case "one":
            return Cuts((end,), 0)
        case "even":
            return Cuts(even_ends(start, end, how.count), driver_rows)
        case "random":
            drawn = random_ends(start, end, random.Random(how.seed), small=_SMALL)  # noqa: S311  # the same cuts again, and no secret
            ends = [
                after
                for one, other in pairwise([start, *drawn])
                for after in (
                    [piece.end for piece in cut_slices(1, one, other, at_most=slice_records)]
                    or [other]
                )
            ]
            sizes = [other.distance(one) for one, other in pairwise([start, *ends])]
            return Cuts(tuple(ends), min(driver_rows, sorted(sizes)[len(sizes) * 3 // 4]))
