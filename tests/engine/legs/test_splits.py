"""Splits of a slice that is too large for the machine (law 12).

It kills each job that folds it whole, then is folded in pieces; nothing is folded twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import crashing
import pytest
from crashing import Doom, World, _reach

from kappa.base.errors import Broken, Damaged
from kappa.base.failpoint import acting
from kappa.engine.legs.splits import Splits
from kappa.state.build import folder
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

# Where a job is killed among the sub-slices, on top of what the machine kills.
FAILPOINTS = ["slice.before_begin", "slice.after_begin", "slice.before_split", "slice.after_split"]
SEAMS = [
    "job.before_first_commit",
    "table.before_commit",
    "table.after_commit",
    "job.between_tables",
    "job.before_frontier",
    "frontier.before_put",
    "frontier.after_put",
]
LATE = {**dict.fromkeys([*FAILPOINTS, *SEAMS], 2), "job.before_frontier": 1}
EVENTS = 40


class SmallMachine(Doom):
    """A slice of more than `most` offsets kills the job that folds it, each time."""

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
    """One build serves all that is in the log, which came in one piece."""
    world.log.ensure(EVENTS)
    if not world.rollouts("one"):
        world.stage("one")
    return world.serves("one") and world.shown[1].equals(world.log.end(["ships"]))


def played(root: Path, doom: Doom) -> World:
    """The world's reader compares each frontier's rows with the log after each round and death."""
    with acting(doom):
        world = World(Store(root), doom, slice_records=1_000)
        _reach(world, caught_up)
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


@pytest.mark.sweep
@pytest.mark.parametrize("point", [*FAILPOINTS, *SEAMS])
def test_killed_at_any_passing_it_comes_to_the_same_end(point: str, tmp_path: Path) -> None:
    passings = killed_at({}, tmp_path / "0").passed[point]
    for passing in sorted({1, (passings + 2) // 3, (passings + 1) // 2, passings}):
        assert killed_at({point: passing}, tmp_path / str(passing)).fired == [point]


def test_a_slice_is_split_once_two_have_begun_it_and_its_pieces_are_all_of_it(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    piece = Slice(3, 7, Offsets({"t": {0: 10, 1: 0}}), Offsets({"t": {0: 13, 1: 20, 2: 1}}))
    for _ in range(2):
        splits = Splits(store, "b")
        splits.split_if_due(piece, piece)
        assert splits.pieces(piece) == (piece,)
        splits.begin(piece)

    third = Splits(store, "b")
    third.split_if_due(piece, piece)
    pieces = third.pieces(piece)

    assert len(pieces) == 8
    assert all(each.distance and (each.leg, each.number) == (3, 7) for each in pieces)
    assert [each.start for each in pieces[1:]] == [each.end for each in pieces[:-1]]
    assert pieces[0].start == piece.start
    assert pieces[-1].end.equals(piece.end)
    again = Splits(store, "b")
    assert again.pieces(piece) == pieces
    assert again.whole(pieces[3]) == Slice(3, 7, piece.start, pieces[-1].end)
    assert again.pieces(Slice(3, 8, piece.end, piece.end)) == (Slice(3, 8, piece.end, piece.end),)


def test_two_processes_do_not_split_the_same_slice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    piece = Slice(1, 0, Offsets(), Offsets({"t": {0: 9}}))
    for _ in range(2):
        Splits(store, "b").begin(piece)
    one, other = Splits(store, "b"), Splits(store, "b")
    one.split_if_due(piece, piece)

    with pytest.raises(Broken, match="the split of slice 1/0 of build b was put by another"):
        other.split_if_due(piece, piece)


def test_a_record_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_json(f"{folder('b')}/begun.json", {"leg": "x"})

    with pytest.raises(Damaged, match="how slices of build b were begun and split cannot be read"):
        Splits(store, "b")
