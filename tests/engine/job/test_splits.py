"""Splits of a slice that is too large for the machine (law 12).

The slice kills each job that folds it whole. Then it is folded in parts, and nothing is folded
twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import crashing
import pytest
from crashing import Died, Doom, LastingWorld, World, ended_for_real, reach
from house import HOUSE, SUPPORT

from kappa.base.failpoint import acting, parsed
from kappa.engine.job.splits import Splits
from kappa.state.build import folder_of_build
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

# Where a job is killed among the sub-slices, on top of what the machine kills.
FAILPOINTS = [
    "slice.before_begin",
    "slice.after_begin",
    "slice.before_split",
    "slice.after_split",
    "table.before_take_back",
    "table.after_take_back",
]
SEAMS = [
    "job.before_first_commit",
    "table.before_commit",
    "table.after_commit",
    "job.between_tables",
    "job.before_frontier",
    "frontier.before_put",
    "frontier.after_put",
]
LATE = {
    **dict.fromkeys([*FAILPOINTS, *SEAMS], 2),
    **dict.fromkeys(["job.before_frontier", "slice.before_split", "slice.after_split"], 1),
}
EVENTS = 40


class SmallMachine(Doom):
    """Kills each job that folds a slice of more than `most` offsets."""

    def __init__(self, store: Store, most: int, points: Mapping[str, int] | None = None) -> None:
        super().__init__(points)
        self._store, self._most = store, most
        self.killed: list[int] = []

    def __call__(self, name: str) -> None:
        if name == "job.before_first_commit" and not self.dead and not self.spares:
            (begun,) = [
                self._store.get_json(each)
                for each in self._store.names("builds")
                if each.endswith("/begun.json")
            ]
            distance = Offsets.parse(begun["end"]).distance(Offsets.parse(begun["start"]))
            if distance > self._most:
                self.killed.append(distance)
                self.dead = True
        super().__call__(name)


def caught_up(world: World) -> bool:
    """Returns True once one build serves the whole log, which arrived as one slice."""
    world.log.ensure(EVENTS)
    if not world.rollouts("one"):
        world.stage("one")
    return world.serves("one") and world.shown[1].equals(world.log.end(["ships"]))


def played(root: Path, doom: Doom) -> World:
    """Plays until the build has caught up.

    After each round and each death, the world's reader compares the frontier's rows with the log.
    """
    with acting(doom):
        # More events than a short catch-up has: all of them are one slice.
        world = World(Store(root), doom, slice_records=1_000, driver_rows=1)
        reach(world, caught_up)
        world.end()
    return world


def tally_of(world: World) -> object:
    from kappa.state.frontier import Frontiers

    newest = Frontiers(world.store, world.state().serving["ships"]).newest()
    assert newest is not None
    return newest.tally


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "deaths"),
    [(EVENTS, []), (EVENTS // 2, [40, 40]), (5, [40, 40]), (3, [40, 40, *[5] * 16]), (0, None)],
)
def test_a_slice_that_kills_is_folded_in_pieces_that_do_not(
    most: int, deaths: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Five jobs are enough to die at all of it, at a piece of it, and at one offset.
    monkeypatch.setattr(crashing, "_MOST_ROUNDS", 200 if deaths is not None else 20)
    doom = SmallMachine(Store(tmp_path), most)
    if deaths is None:
        with pytest.raises(AssertionError, match="was not reached"):
            played(tmp_path, doom)
        # What cannot be split is tried again, and said by `kappa status`: no offset is passed over.
        assert set(doom.killed) == {40, 5, 1}
        return

    world = played(tmp_path, doom)

    assert doom.killed == deaths
    assert tally_of(world) == tally_of(played(tmp_path / "whole", Doom()))


def killed_at(points: Mapping[str, int], root: Path) -> SmallMachine:
    whole = played(root / "whole", Doom())
    doom = SmallMachine(Store(root / "pieces"), 3, points)
    world = played(root / "pieces", doom)

    assert (world.shown, tally_of(world)) == (whole.shown, tally_of(whole))
    return doom


@pytest.mark.slow
def test_killed_among_the_pieces_as_well_it_comes_to_the_same_end(tmp_path: Path) -> None:
    doom = killed_at(LATE, tmp_path)

    assert set(doom.fired) == set(LATE)


@pytest.mark.long
@pytest.mark.fault
def test_killed_for_real_among_the_pieces_it_comes_to_the_same_end(tmp_path: Path) -> None:
    """A process whose slice is too large dies by SIGKILL, and so do its successors."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), str(SUPPORT)])}

    subprocess.run([sys.executable, __file__, str(tmp_path)], env=environment, check=True)

    world = LastingWorld(tmp_path)
    whole = played(tmp_path / "whole", Doom())
    assert (world.shown, tally_of(world)) == (whole.shown, tally_of(whole))


@pytest.mark.sweep
@pytest.mark.parametrize("point", [*FAILPOINTS, *SEAMS])
def test_killed_at_any_passing_it_comes_to_the_same_end(point: str, tmp_path: Path) -> None:
    # There is something to take back only after a death behind a commit.
    before = {"table.after_commit": 1} if "take_back" in point else {}
    passings = killed_at(before, tmp_path / "0").passed[point]
    for passing in sorted({1, (passings + 2) // 3, (passings + 1) // 2, passings}):
        assert killed_at({**before, point: passing}, tmp_path / str(passing)).fired == [
            *before,
            point,
        ]


def test_a_slice_is_split_once_two_have_begun_it_and_its_parts_are_all_of_it(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    piece = Slice(3, 7, Offsets({"t": {0: 10, 1: 0}}), Offsets({"t": {0: 13, 1: 20, 2: 1}}))
    for _ in range(2):
        splits = Splits(store, "b")
        assert splits.parts(piece) == (piece,)
        splits.begin(piece)

    parts = Splits(store, "b").parts(piece)

    assert len(parts) == 8
    assert all(each.distance and (each.leg, each.number) == (3, 7) for each in parts)
    assert [each.start for each in parts[1:]] == [each.end for each in parts[:-1]]
    assert parts[0].start == piece.start
    assert parts[-1].end.equals(piece.end)
    # The next job goes on behind the parts that are folded.
    again = Splits(store, "b")
    assert again.parts(Slice(3, 7, parts[2].end, piece.end)) == parts[3:]
    following = Slice(3, 8, piece.end, Offsets({"t": {0: 40, 1: 40, 2: 40}}))
    assert again.parts(following) == (following,)


def test_a_slice_that_one_job_has_given_up_is_split_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    piece = Slice(3, 7, Offsets(), Offsets({"t": {0: 16}}))
    splits = Splits(store, "b")
    splits.begin(piece)
    splits.give_up(piece)

    again = Splits(store, "b")
    parts = again.parts(piece)

    assert [part.distance for part in parts] == [2] * 8
    assert "slice 3/7 was begun 1 time and not ended; 16 offsets of it" in capsys.readouterr().err
    # A part that is begun has not been given up: one more job may fold it whole.
    again.begin(parts[0])
    assert Splits(store, "b").parts(piece) == parts


def test_the_slice_of_a_tail_is_split_though_it_has_grown_each_time(tmp_path: Path) -> None:
    store, start = Store(tmp_path), Offsets({"t": {0: 10}})
    for end in (20, 30):
        Splits(store, "b").begin(Slice(2, 5, start, Offsets({"t": {0: end}})))

    parts = Splits(store, "b").parts(Slice(2, 5, start, Offsets({"t": {0: 42}})))
    grown = Splits(store, "b").parts(Slice(2, 5, start, Offsets({"t": {0: 50}})))

    assert [each.end.at("t", 0) for each in parts] == [14, 18, 22, 26, 30, 34, 38, 42]
    assert [each.end.at("t", 0) for each in grown] == [14, 18, 22, 26, 30, 34, 38, 42, 50]


def test_a_record_that_cannot_be_read_is_moved_aside_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    store.put_json(f"{folder_of_build('b')}/begun.json", {"times": "x"})
    piece = Slice(1, 0, Offsets(), Offsets({"t": {0: 9}}))

    assert Splits(store, "b").parts(piece) == (piece,)
    assert store.names(folder_of_build("b")) == ()
    assert len(store.names("damaged")) == 1
    assert "how slices of build b were begun and split cannot be read" in capsys.readouterr().err


def play_on(folder: Path, point: str = "") -> None:
    """Plays to the end or to a failpoint; a job dies at slices of more than half the events."""
    world = LastingWorld(folder, slice_records=1_000, driver_rows=1)
    machine, kill = SmallMachine(world.store, EVENTS // 2), parsed(point and f"{point}:kill")

    def act(name: str) -> None:
        (folder / f"passed {name}").touch()
        if kill is not None:
            kill(name)
        try:
            machine(name)
        except Died:
            os.kill(os.getpid(), signal.SIGKILL)

    with acting(act):
        reach(world, caught_up)
    world.end()


def play_with_deaths(folder: Path) -> None:
    deaths = 0
    for point in (*FAILPOINTS[:4], "table.after_commit", *FAILPOINTS[4:]):
        while not (folder / f"passed {point}").exists():
            code = ended_for_real(partial(play_on, folder, point))
            assert code == -signal.SIGKILL, (point, code)
            deaths += 1
    # The machine has killed a job besides.
    assert deaths > len(FAILPOINTS) + 1
    assert ended_for_real(partial(play_on, folder)) == 0


if __name__ == "__main__":
    play_with_deaths(Path(sys.argv[1]))
