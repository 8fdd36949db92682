"""The law of a memory of records: it always returns the same as a fresh read."""

from __future__ import annotations

from pathlib import Path

import pytest
from births import make_birth
from msgspec.structs import replace

from kappa.base.errors import Damaged, KappaError
from kappa.state.build import Birth, birth_name, put_birth, read_birth
from kappa.state.build_status import ensure_not_stopped, put_stopped, read_stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.record_cache import ReadMemory
from kappa.state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "root", syncs=False)
    put_birth(made, make_birth("b"))
    return made


def test_a_change_is_seen_at_once(store: Store) -> None:
    """Changes are seen even if they follow each other within a tick of the kernel's clock."""
    memory, frontiers = ReadMemory(store), Frontiers(store, "b")
    frontier = Frontier(1, "b", 1, Offsets(), {}, "2026-01-31T12:00:00Z")
    for number in range(1, 60):
        frontiers.publish(replace(frontier, number=number))
        put_stopped(store, "b", KappaError(f"no {number}"))
        for _ in range(2):
            newest = memory.newest_frontier("b")
            assert newest is not None
            assert newest.number == number
            found = memory.beside_build("b", "stopped", lambda: read_stopped(store, "b"))
            assert found is not None
            assert found.message == f"no {number}"
    ensure_not_stopped(store, "b")
    assert memory.beside_build("b", "stopped", lambda: read_stopped(store, "b")) is None


def test_what_has_not_changed_is_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, read = ReadMemory(store), list[str]()
    # The time of a record counts once the clock has moved on.
    monkeypatch.setattr("kappa.state.record_cache._TICK_NS", -1)

    def told(store: Store, build: str) -> Birth:
        read.append(build)
        return read_birth(store, build)

    monkeypatch.setattr("kappa.state.record_cache.read_birth", told)
    first = memory.birth("b")
    assert memory.birth("b") is first
    store.delete(birth_name("b"))
    put_birth(store, make_birth("b", version="v2"))
    assert memory.birth("b").version == "v2"
    assert read == ["b", "b"]
    memory.forget_other(frozenset())
    assert memory.birth("b").version == "v2"
    assert read == ["b"] * 3


def test_a_lost_record_is_not_recalled(store: Store) -> None:
    memory = ReadMemory(store)
    assert memory.birth("b").build == "b"
    store.delete(birth_name("b"))

    with pytest.raises(Damaged):
        memory.birth("b")
    assert memory.newest_frontier("b") is None
