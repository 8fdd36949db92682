"""Runs replays of one topic in turns. Each replay is the whole catch-up of a new build."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bids import ensure_input, topic_files, warm_page_cache
from cells import TASKS, Cell
from figures import Warm
from ground import ground, say, take_whole
from kappa_job import KappaJob
from oracle import Oracle
from rivals import Attempt
from screen import spread_of

_MARGIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The cost of one replay.

    `wall` is the time in seconds from the start of the replay's process to its exit. `warm`
    contains the events and seconds of the slices after the first large slice, or is None.
    """

    wall: float
    warm: Warm | None


def in_turns(
    home: Path, ways: Mapping[str, tuple[KappaJob, Cell]], rounds: int
) -> Mapping[str, Sequence[Replay]] | None:
    """Replays one topic in each of several ways, round by round.

    `ways` maps the name of each way to its program and cell. The cells of all ways must have the
    same topic. Returns None if a result differs from the oracle's.
    """
    cells = [cell for _, cell in ways.values()]
    for kappa, _ in ways.values():
        kappa.set_up(home)
    found: dict[str, list[Replay]] = {way: [] for way in ways}
    with ground(home) as here:
        servers, inputs = here.log.bootstrap_servers, home / "inputs"
        given = ensure_input(here.log, cells[0], inputs, home, say)
        oracles = {cell.task: Oracle(servers, given, cell, inputs, say) for cell in cells}
        for number in range(rounds):
            for way, (kappa, cell) in ways.items():
                warm_page_cache(topic_files(home, cell.topic))
                folder = home / "run" / cell.name
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                attempt = Attempt(cell, given, servers, folder)
                most = _MARGIN_SECONDS + cell.events / TASKS[cell.task].slowest
                took = take_whole(kappa.prepare(attempt), folder, most, f"the replay of {way}")
                wrong = oracles[cell.task].differences(kappa.result(attempt))
                if wrong is not None:
                    say(f"no figure: the result of {way} is not the oracle's: {wrong}")
                    return None
                found[way].append(Replay(took.wall, kappa.warm(attempt)))
                say(
                    f"round {number + 1}, {way}: {took.wall:.1f} s, CPU {took.cpu:.1f} s, "
                    f"peak {took.rss / 2**30:.2f} GiB, equal"
                )
                shutil.rmtree(folder)
    return found


def times(one: Sequence[float], other: Sequence[float]) -> str:
    """Returns the spread of `other` / `one` as text, computed per round."""
    return spread_of([more / less for less, more in zip(one, other, strict=True)], "{:.2f}")
