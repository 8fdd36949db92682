"""Computes figures from rounds: medians with minimum and maximum, and ratios per round. Pure.

Ratios are computed within a round, because Kappa and the rival ran under a similar load in the same
round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cells import KAPPA


@dataclass(frozen=True, slots=True)
class Warm:
    """The events and seconds of a run, without its beginning (for example the first slice)."""

    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Returns the events per second."""
        return self.events / self.seconds


@dataclass(frozen=True, slots=True)
class Round:
    """One run of one rival: wall-clock and CPU seconds, and peak memory in bytes.

    `load` is the load average before the run. Both times include the whole start. `refused` is the
    reason if the run counts for no figure: the run failed, or its result differed from the oracle's
    (then `unequal` is True).
    """

    number: int
    rival: str
    events: int
    wall: float
    cpu: float
    rss: int
    load: float
    warm: Warm | None = None
    refused: str | None = None
    unequal: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of some values."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Returns the spread of some values, or None if there are no values."""
        found = sorted(values)
        return cls(median(found), found[0], found[-1]) if found else None


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of one rival.

    `cold` and `warm` are events per second, and `cpu` is microseconds per event. A ratio is the
    factor by which Kappa is better than the rival. `refused` is the reason why figures are missing;
    all figures are missing if any result of the rival differed from the oracle's.
    """

    rival: str
    rounds: int
    wall: Spread | None = None
    cold: Spread | None = None
    warm: Spread | None = None
    cpu: Spread | None = None
    rss: int = 0
    cold_ratio: Spread | None = None
    warm_ratio: Spread | None = None
    cpu_ratio: Spread | None = None
    refused: str | None = None


def figures(
    rounds: Sequence[Round], rivals: Sequence[str], missing: Mapping[str, str]
) -> tuple[Figure, ...]:
    """Returns the figures of each rival, in the order of `rivals`.

    `missing` maps each rival that could not be set up to the reason.
    """
    kappas = {each.number: each for each in _usable(rounds, KAPPA)}
    return tuple(
        Figure(rival, 0, refused=missing[rival])
        if rival in missing
        else _figure(rounds, rival, kappas)
        for rival in rivals
    )


def _figure(rounds: Sequence[Round], rival: str, kappas: Mapping[int, Round]) -> Figure:
    good = _usable(rounds, rival)
    refused = next(
        (
            each.refused
            for each in sorted(rounds, key=lambda one: not one.unequal)
            if each.rival == rival and each.refused is not None
        ),
        None,
    )
    if not good:
        return Figure(rival, 0, refused=refused or "not run yet")

    def ratio(of: Callable[[Round], float | None]) -> Spread | None:
        """Returns the spread over the rounds of the rival's value divided by Kappa's value."""
        if rival == KAPPA:
            return None
        pairs = ((of(each), of(kappas[each.number])) for each in good if each.number in kappas)
        return Spread.of(theirs / ours for theirs, ours in pairs if theirs is not None and ours)

    return Figure(
        rival,
        len(good),
        wall=Spread.of(each.wall for each in good),
        cold=Spread.of(each.events / each.wall for each in good),
        warm=Spread.of(each.warm.rate for each in good if each.warm is not None),
        cpu=Spread.of(each.cpu / each.events * 1e6 for each in good),
        rss=max(each.rss for each in good),
        cold_ratio=ratio(lambda each: each.wall / each.events),
        warm_ratio=ratio(lambda each: None if each.warm is None else 1 / each.warm.rate),
        cpu_ratio=ratio(lambda each: each.cpu),
        refused=refused,
    )


def _usable(rounds: Sequence[Round], rival: str) -> list[Round]:
    """Returns the rounds of a rival that count for figures.

    Returns no rounds if any result of the rival differed from the oracle's.
    """
    own = [each for each in rounds if each.rival == rival]
    return (
        [] if any(each.unequal for each in own) else [each for each in own if each.refused is None]
    )


def comparable(
    cell: str, events: int, keys: int, found: Sequence[Figure], load: Spread | None
) -> str:
    """Returns one line with all ratios, to be compared with the line of an earlier benchmark."""

    def told(name: str, spread: Spread | None) -> str:
        return (
            ""
            if spread is None
            else f" {name} {spread.median:.3g} ({spread.least:.3g}-{spread.most:.3g})"
        )

    parts = []
    for each in found:
        ratios = (
            told("cold", each.cold_ratio)
            + told("warm", each.warm_ratio)
            + told("cpu", each.cpu_ratio)
        )
        if each.rival != KAPPA or not each.rounds:
            parts.append(f"against {each.rival}:{ratios}" if ratios else f"{each.rival}: no ratio")
    at = "" if load is None else f"; load {load.least:.1f}-{load.most:.1f}"
    return f"bench {cell}, {events} events, {keys} keys: kappa {'; '.join(parts) or 'alone'}{at}"
