"""The rest of a build: when it needs no job, and when it is woken. Pure.

A job costs memory and a little of a core also while nothing comes. A build whose readers have all
of the log rests after `engine.rest_after`; the next record wakes it. One that is only kept for an
undo folds in turns: many records at once, or what has come since the last turn. A build that reads
a compacted topic is woken in time to hear of every deletion (law 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kappa.state.offsets import Offsets

# Of the time for which a topic keeps something, a turn takes this part; and at most an hour.
_PART = 4
_LONGEST_TURN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise of a build's topics to one that is away.

    They keep all that it has not read for more than `turn_seconds`. `hears` is true if it has to
    hear of deletions in that time; `by_size`, if a topic may delete what has not been read at once.
    """

    turn_seconds: float = _LONGEST_TURN_SECONDS
    hears: bool = False
    by_size: bool = False

    @classmethod
    def of(cls, topics: Iterable[Mapping[str, str]]) -> Promise:
        """Returns the promise of topics with these settings in force."""
        turn, hears, by_size = _LONGEST_TURN_SECONDS, False, False
        for config in topics:
            policy = config.get("cleanup.policy", "delete").split(",")
            if "compact" in policy:
                hears = True
                turn = min(turn, _seconds(config, "delete.retention.ms") / _PART)
            if "delete" in policy:
                by_size = by_size or int(config.get("retention.bytes", "-1")) >= 0
                turn = min(turn, _seconds(config, "retention.ms") / _PART)
        return cls(turn, hears, by_size)


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at a build: what it has folded, and what the log has of its topics.

    `heard_seconds` is how long ago it heard of all deletions. A build that is `kept` neither serves
    nor is on its way to. A job `runs` or does not.
    """

    offsets: Offsets
    end: Offsets
    heard_seconds: float
    kept: bool
    runs: bool
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Repose:
    """The memory of a build: whether it `rests`, and since when nothing has changed.

    `target` is what a kept build folds before it rests again.
    """

    rests: bool
    since: float
    offsets: Offsets
    kept: bool = False
    target: Offsets | None = None


def after_look(
    before: Repose | None,
    seen: Looked,
    promise: Promise,
    *,
    now: float,
    rest_after: float,
    many: int,
) -> Repose:
    """Returns what a build is to do after a look at it.

    It rests after `rest_after` seconds without a change. `now` is in seconds that only go forward.
    So many records wake also one that is kept.
    """
    known = before or Repose(not seen.runs, now, seen.offsets, seen.kept)
    late = promise.hears and seen.heard_seconds > promise.turn_seconds
    if promise.turn_seconds < rest_after or late or (known.kept and not seen.kept):
        return Repose(rests=False, since=now, offsets=seen.offsets, kept=seen.kept)
    in_turns = seen.kept and not promise.by_size
    if known.rests:
        waits = not seen.end.equals(seen.offsets)
        if in_turns:
            waits = waits and (
                seen.asked
                or seen.end.distance(seen.offsets) >= many
                or not seen.end.covers(seen.offsets)
                or now - known.since >= promise.turn_seconds
            )
        if not waits:
            return replace(known, kept=seen.kept)
        return Repose(rests=False, since=now, offsets=seen.offsets, kept=seen.kept, target=seen.end)
    if in_turns:
        target = known.target if known.kept and known.target is not None else seen.end
        done = seen.offsets.covers(target)
        return Repose(done, now, seen.offsets, kept=True, target=target)
    since = known.since if known.offsets == seen.offsets else now
    done = now - since >= rest_after and seen.end.equals(seen.offsets)
    return Repose(done, now if done else since, seen.offsets, seen.kept)


def _seconds(config: Mapping[str, str], name: str) -> float:
    given = int(config.get(name, "-1"))
    return given / 1000 if given >= 0 else float("inf")
