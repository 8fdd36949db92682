"""A damaged record of a root is named, and after a repair the platform continues (I7, I9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Doom, World
from served import PLANES, ROWS_OF_PLANES, Platform

from kappa.base.document_seal import encoded
from kappa.base.errors import Conflict, Damaged, KappaError
from kappa.base.sections import Role
from kappa.replay.status.doctor.examine import Damage, count_set_aside, examine_root
from kappa.replay.status.doctor.repair import repair_root
from kappa.replay.status.status import observe_status
from kappa.replay.status.status_text import status_heading
from kappa.serving.access.accounts import TOKENS
from kappa.serving.access.tokens import TokenFile
from kappa.serving.outlets.changes.table_snapshot import Point, point_at
from kappa.serving.query.pin.snapshot_reads import last_frontier
from kappa.serving.query.query import answer_query
from kappa.state.build import read_birth, table_path
from kappa.state.files.address import delete_file, entries_at
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import (
    KeptFrontierRecord,
    kept_frontiers_of,
    kept_name,
    lost_kept_numbers,
    parse_moment,
    put_kept_frontier,
)
from kappa.state.lease import Lease, ensure_lease, read_lease
from kappa.state.lock import Lock
from kappa.state.offsets import Offsets
from kappa.state.root import LOCK, ROOT_COPY, ensure_root
from kappa.state.root import NAME as ROOT
from kappa.state.store import Store
from kappa.tables.versions import files


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(Store(tmp_path), Doom())
    world.serve("one", 16)
    return world


def build(world: World) -> str:
    return world.state().serving["ships"]


def newest(store: Store, folder: str) -> str:
    return store.names(folder)[-1]


def found_in(world: World) -> tuple[Damage, ...]:
    """Examines the root as a new process does, which remembers nothing of the root."""
    return examine_root(Store(world.store.folder), now=0.0)


def test_what_it_finds_whole_it_leaves_alone(world: World) -> None:
    """A root without damage is not changed, and its disk may be read-only.

    The kernel mounts a failing disk read-only.
    """
    ended = Lease(1, "ada", expires_at=0.0, pins={})
    ensure_lease(world.store, ended)

    assert examine_root(world.store, now=1e10) == ()

    assert read_lease(world.store, ended.id) == ended


def goes_on(world: World) -> None:
    """Folds the records that have arrived since, and asserts that a reader sees nothing go back."""
    world.store = Store(world.store.folder)
    world.begin()
    world.log.ensure(30)
    for _ in range(6):
        world.round()
        world.look()
    world.end()
    assert world.shown[1].equals(world.log.end(["ships"]))


def test_nothing_is_found_where_nothing_is_damaged(world: World) -> None:
    assert examine_root(world.store, now=0.0) == ()
    assert count_set_aside(world.store) == 0


def test_deleted_files_are_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job continues during the examination, so the files of its older frontiers may go."""
    moved: list[str] = []

    def current() -> set[str]:
        store = Store(world.store.folder)
        frontier = Frontiers(store, build(world)).newest()
        versions, lists = frontier.versions.items(), frontier.file_lists
        paths = {name: table_path(store, build(world), name) for name, _ in versions}
        listed = (files(paths[name], version, lists.get(name)) for name, version in versions)
        return {file for each in listed for file in each}

    def listed_late(path: str) -> object:
        if not moved:
            before = current()
            goes_on(world)
            moved.extend(before - current())
            for file in moved:
                delete_file(file)
        return entries_at(path)

    monkeypatch.setattr("kappa.replay.status.doctor.examine.entries_at", listed_late)

    assert found_in(world) == ()
    assert moved


CONTENTS = [
    b"{",
    *(pytest.param(each, marks=pytest.mark.slow) for each in (b"", b'{"format": 1}', b"\0" * 64)),
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("folder", ["frontier", "floor", "legs"])
def test_builds_record_is_made_anew(world: World, folder: str, content: bytes) -> None:
    """A build's damaged record is moved aside, and then made again."""
    name = newest(world.store, f"builds/{build(world)}/{folder}")
    world.store.put(name, content)

    found = examine_root(world.store, now=0.0)

    assert [each.names for each in found] == [(name,)]
    assert found[0].follows
    assert found[0].then
    moved = repair_root(world.store, found)
    assert [Path(path).read_bytes() for path in moved] == [content]
    if folder != "frontier":
        assert examine_root(world.store, now=0.0) == ()
    goes_on(world)
    assert examine_root(world.store, now=0.0) == ()


@pytest.mark.parametrize("damage", ["lost", "changed", "torn"])
def test_journal_is_cut_before_damage(world: World, damage: str) -> None:
    """The journal is cut before a damaged record; the hint is that a copy is better."""
    serving, last = build(world), len(world.store.names("journal"))
    name = newest(world.store, "journal")
    content = world.store.get(name)
    number = last
    if damage == "lost":
        name, number = world.store.names("journal")[-2], last - 1
        world.store.delete(name)
    else:
        world.store.put(name, content.replace(b"ships", b"shops") if damage == "changed" else b"{")

    (found,) = found_in(world)

    assert f"journal record {number}" in found.what
    assert "a copy of the journal" in found.hint
    if damage == "lost":
        assert "(1 served)" in found.follows
    repair_root(world.store, [found])
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
    # As the supervisor does.
    ensure_root(any_store)
    world.serve("one", 16)
    assert examine_root(world.store, now=0.0) == ()
    frontier = Frontiers(world.store, build(world)).newest()
    path = table_path(world.store, build(world), "ships")
    gone = files(path, frontier.versions["ships"], None)[0]
    delete_file(gone)

    (found,) = examine_root(world.store, now=0.0)

    assert gone in found.what
    assert f"queries of build {build(world)} fail" in found.follows
    assert found.names == ()
    assert "kappa replay" in found.hint


def test_a_birth_certificate_that_is_torn_is_named(world: World) -> None:
    world.store.put(f"builds/{build(world)}/birth.json", b"")

    (found,) = found_in(world)

    assert "birth certificate" in found.what
    assert "its copy takes its place" in found.then


def test_a_root_that_does_not_say_any_more_what_it_is_is_named(world: World) -> None:
    """A damaged record of the root is named; otherwise an adopted copy would send unnoticed."""
    whole = world.store.get(ROOT)
    for damaged in (whole[:-9], None):
        world.store.delete(ROOT)
        if damaged is not None:
            world.store.put(ROOT, damaged)
        (found,) = found_in(world)
        assert (ROOT in found.what, found.names) == (True, (ROOT,))
        repair_root(world.store, [found])
        assert world.store.get(ROOT) == whole
        assert found_in(world) == ()

    world.store.delete(ROOT_COPY)
    world.store.put(ROOT, whole[:-9])
    (changed,) = found_in(world)
    world.store.delete(ROOT)
    (gone,) = found_in(world)

    assert all(ROOT in each.what and each.hint for each in (changed, gone))
    assert not changed.names + gone.names
    # A copy that is cut short gets it last.
    world.store.put_json("copying.json", {"from": "elsewhere"})
    assert found_in(world) == ()
    world.store.delete("copying.json")
    # A root of an earlier Kappa has none until it is up.
    name = newest(world.store, f"builds/{build(world)}/frontier")
    world.store.put(name, encoded(world.store.get_json(name)))
    assert found_in(world) == ()
    ensure_root(Store(world.store.folder))
    assert found_in(world) == ()


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_birth_certificate_has_a_copy_that_takes_its_place(world: World, damage: str) -> None:
    """A damaged birth certificate is refused, and its copy replaces it.

    One changed bit in a view's SQL would change answers, and without a certificate nothing runs.
    """
    name = f"builds/{build(world)}/birth.json"
    content = world.store.get(name)
    world.store.delete(name)
    if damage == "changed":
        world.store.put(name, content.replace(b"ships", b"shipt", 1))
    with pytest.raises(Damaged, match=name) as told:
        answer_query(Store(world.store.folder), "from ships")
    assert "kappa doctor --repair" in told.value.hint

    found = found_in(world)

    assert [each.names for each in found] == [(name,)]
    repair_root(world.store, found)
    assert world.store.get(name) == content
    assert found_in(world) == ()
    goes_on(world)


def with_two_frontiers(store: Store) -> Platform:
    platform = Platform(store)
    platform.serve("flights", {PLANES: ROWS_OF_PLANES})
    platform.advance("flights-1", PLANES, ROWS_OF_PLANES.slice(0, 1))
    return platform


def test_lost_newest_frontier_is_not_answered(any_store: Store) -> None:
    """If the newest frontier is lost, queries are not answered from the frontier before."""
    platform = with_two_frontiers(any_store)
    shown = platform.ask("select count(*) from planes").rows
    name = newest(any_store, "builds/flights-1/frontier")
    any_store.delete(name)

    with pytest.raises(Damaged, match=f"frontier 2 of build flights-1 is gone: .*{name}") as told:
        platform.ask("select count(*) from planes")

    assert shown == ((2,),)
    assert "kappa doctor" in told.value.hint
    # The journal of this platform has no stages.
    (found,) = (each for each in examine_root(any_store, now=0.0) if name in each.what)
    repair_root(any_store, [found])
    # Only what was given up by hand.
    assert platform.ask("select count(*) from planes").rows == ((1,),)


@pytest.mark.parametrize("damage", ["lost", "torn"])
def test_number_of_lost_frontier_is_gone(any_store: Store, damage: str, tmp_path: Path) -> None:
    """The number of a lost frontier is not used again.

    A reader elsewhere, and a cursor, identify what they saw by this number.
    """
    platform = with_two_frontiers(any_store)
    elsewhere = Store(any_store.url, storage=any_store.storage, local=tmp_path / "elsewhere")
    seen = last_frontier(elsewhere, "flights-1")
    (table,) = (each for each in read_birth(any_store, "flights-1").tables if each == PLANES)
    cursor = Point(1, read_birth(any_store, "flights-1"), seen, table).cursor
    name = newest(any_store, "builds/flights-1/frontier")
    if damage == "lost":
        any_store.delete(name)
    else:
        any_store.put(name, b"{")

    repair_root(any_store, [each for each in examine_root(any_store, now=0.0) if name in each.what])
    # The next job begins so, and its first slice is what the last one's was not.
    platform.advance("flights-1", PLANES, ROWS_OF_PLANES.slice(1, 1))

    following = last_frontier(elsewhere, "flights-1")
    assert following.number > seen.number
    assert following == Frontiers(any_store, "flights-1").newest()
    assert point_at(any_store, cursor, "planes", 0.0) is None
    assert [each for each in examine_root(any_store, now=0.0) if "frontier" in each.what] == []


@pytest.mark.parametrize("folder", ["journal", "frontier", "birth"])
def test_a_status_shows_what_can_be_read_beside_what_is_damaged(world: World, folder: str) -> None:
    name = {
        "journal": newest(world.store, "journal"),
        "frontier": newest(world.store, f"builds/{build(world)}/frontier"),
        "birth": f"builds/{build(world)}/birth.json",
    }[folder]
    world.store.put(name, b"")

    status = observe_status(Store(world.store.folder), None)

    assert [each.pipeline for each in status.builds] == ["ships"]
    assert all(name in why for why in status.damaged)
    assert f"DAMAGED: {status.damaged[0]}" in status_heading(status, None, None)


def test_a_kept_frontier_that_is_lost_is_not_answered_from_an_older_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, before in ((1, None), (4, 1), (9, 4)):
        frontier = Frontier(number, "b", 1, Offsets(), {}, f"2026-01-01T00:00:0{number}+00:00")
        put_kept_frontier(store, KeptFrontierRecord(frontier, before=before))
    at = parse_moment("2026-01-01T00:00:05+00:00")
    assert kept_frontiers_of(store, "b")[1].shown_at(at)

    store.delete(kept_name("b", 4))
    assert lost_kept_numbers(store, "b") == (4,)
    assert not kept_frontiers_of(store, "b")[0].shown_at(at)
    store.delete(kept_name("b", 9))
    assert lost_kept_numbers(store, "b") == (9,)
    assert not kept_frontiers_of(store, "b")[0].shown_at(at)


def test_nothing_is_moved_under_a_platform_that_runs(world: World) -> None:
    name = newest(world.store, f"builds/{build(world)}/legs")
    world.store.put(name, b"")
    found = examine_root(world.store, now=0.0)

    with Lock(world.store.path(LOCK), what="kappa"), pytest.raises(Conflict, match="kappa is up"):
        repair_root(world.store, found)

    assert world.store.get(name) == b""


def test_damage_that_was_not_repaired_stops_jobs_and_readers_with_a_sentence(world: World) -> None:
    world.store.put(newest(world.store, f"builds/{build(world)}/frontier"), b"")

    with pytest.raises(KappaError, match="frontier"):
        world.look()


def test_damaged_tokens_are_told(tmp_path: Path) -> None:
    """A damaged file of tokens is reported. It has no copy, so only its owner can mend it."""
    store = Store(tmp_path)
    TokenFile(tmp_path / TOKENS).add_token("grafana", [Role.READ], made_by="me")
    assert examine_root(store, now=0.0) == ()

    (tmp_path / TOKENS).write_text("{")
    (damage,) = examine_root(store, now=0.0)
    assert "tokens.json cannot be read" in damage.what
    assert "no client with a token by name is let in" in damage.follows
    assert damage.names == ()
    assert "kappa token add" in damage.hint
