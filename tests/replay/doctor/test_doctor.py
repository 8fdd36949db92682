"""A damaged record of a root is named, and after a repair the platform goes on (I7, I9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Doom, World

from kappa.base.errors import Conflict, KappaError
from kappa.objects.address import delete_file
from kappa.state.build import table_path
from kappa.state.frontier import Frontiers
from kappa.state.lock import Lock
from kappa.state.root import LOCK
from kappa.state.store import Store
from kappa.tables.versions import files
from replay.doctor.examine import examine, set_aside
from replay.doctor.repair import repair


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(Store(tmp_path), Doom())
    world.serve("one", 16)
    return world


def build(world: World) -> str:
    return world.state().serving["ships"]


def newest(world: World, folder: str) -> str:
    return world.store.names(folder)[-1]


def goes_on(world: World) -> None:
    """Folds what has arrived since, and a reader sees nothing go back."""
    world.store = Store(world.store.folder)
    world.begin()
    world.log.ensure(30)
    for _ in range(6):
        world.round()
        world.look()
    world.end()
    assert world.shown[1].equals(world.log.end(["ships"]))


def test_nothing_is_found_where_nothing_is_damaged(world: World) -> None:
    assert examine(world.store, now=0.0) == ()
    assert set_aside(world.store) == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1}', b"\0" * 64])
@pytest.mark.parametrize("folder", ["frontier", "floor", "legs"])
def test_a_record_of_a_build_is_moved_aside_and_made_anew(
    world: World, folder: str, content: bytes
) -> None:
    name = newest(world, f"builds/{build(world)}/{folder}")
    world.store.put(name, content)

    found = examine(world.store, now=0.0)

    assert [each.names for each in found] == [(name,)]
    assert found[0].follows
    assert found[0].then
    moved = repair(world.store, found)
    assert [Path(path).read_bytes() for path in moved] == [content]
    assert examine(world.store, now=0.0) == ()
    goes_on(world)


@pytest.mark.parametrize("damage", ["lost", "changed", "torn"])
def test_a_journal_is_cut_before_the_first_record_that_is_damaged(
    world: World, damage: str
) -> None:
    """A copy is better, and is told of; without one all goes on from there."""
    serving, last = build(world), len(world.store.names("journal"))
    name = newest(world, "journal")
    content = world.store.get(name)
    assert content is not None
    number = last
    if damage == "lost":
        name, number = world.store.names("journal")[-2], last - 1
        world.store.delete(name)
    else:
        world.store.put(name, content.replace(b"ships", b"shops") if damage == "changed" else b"{")

    (found,) = examine(Store(world.store.folder), now=0.0)

    assert f"journal record {number}" in found.what
    assert "a copy of the journal" in found.hint
    if damage == "lost":
        assert "(1 served)" in found.follows
    repair(world.store, [found])
    again = World(Store(world.store.folder), Doom())
    again.log = world.log
    assert not again.state().serving
    # What had led to it is decided again.
    for _ in range(40):
        again.round()
        if again.serves("one"):
            break
    again.look()
    again.end()
    assert build(again) == serving


def test_a_table_whose_file_is_gone_is_named_with_what_to_do(any_store: Store) -> None:
    world = World(any_store, Doom())
    world.serve("one", 16)
    assert examine(world.store, now=0.0) == ()
    frontier = Frontiers(world.store, build(world)).newest()
    assert frontier is not None
    path = table_path(world.store, build(world), "ships")
    gone = files(path, frontier.versions["ships"])[0]
    delete_file(gone)

    (found,) = examine(world.store, now=0.0)

    assert gone in found.what
    assert f"queries of build {build(world)} fail" in found.follows
    assert found.names == ()
    assert "kappa replay" in found.hint


def test_a_birth_certificate_that_is_torn_is_named(world: World) -> None:
    world.store.put(f"builds/{build(world)}/birth.json", b"")

    (found,) = examine(Store(world.store.folder), now=0.0)

    assert "birth certificate" in found.what
    assert found.hint


def test_nothing_is_moved_under_a_platform_that_runs(world: World) -> None:
    name = newest(world, f"builds/{build(world)}/legs")
    world.store.put(name, b"")
    found = examine(world.store, now=0.0)

    with Lock(world.store.path(LOCK), what="kappa"), pytest.raises(Conflict, match="kappa is up"):
        repair(world.store, found)

    assert world.store.get(name) == b""


def test_damage_that_was_not_repaired_stops_jobs_and_readers_with_a_sentence(world: World) -> None:
    world.store.put(newest(world, f"builds/{build(world)}/frontier"), b"")

    with pytest.raises(KappaError, match="frontier"):
        world.look()
