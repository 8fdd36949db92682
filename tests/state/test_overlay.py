"""Laws of an overlay's state: it serves what the build below it has."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from kappa.state.build import Birth, folded_by, folder_of_build, put_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import KeptFrontierRecord, kept_frontiers_of, put_kept_frontier
from kappa.state.lease import put_floor, read_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store

BELOW = Birth("a", "p", "v", {}, 1, {}, "", (), (), {}, {}, {}, "then", "me")
SHOWN = Frontier(3, "a", 1, Offsets({"x": {0: 3}}), {"t": 3}, "2026-01-01T12:00:00.000+00:00")


def test_an_overlay_serves_what_the_build_below_it_has(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_birth(store, BELOW)
    put_birth(store, replace(BELOW, build="b", tables_of="a"))
    Frontiers(store, "a").publish(SHOWN)
    put_kept_frontier(store, KeptFrontierRecord(SHOWN))
    put_floor(store, "a", 2)

    assert folded_by(store, "b") == "a"
    assert table_path(store, "b", "t") == table_path(store, "a", "t")
    assert Frontiers(store, "b").newest() == SHOWN
    assert kept_frontiers_of(store, "b") == (KeptFrontierRecord(SHOWN),)
    assert read_floor(store, "b") == 2
    assert store.names(folder_of_build("b")) == ("builds/b/birth.json", "builds/b/birth_copy.json")


def test_a_build_that_is_born_later_is_looked_at_again(tmp_path: Path) -> None:
    store = Store(tmp_path)

    assert folded_by(store, "b") == "b"
    put_birth(store, replace(BELOW, build="b", tables_of="a"))
    assert folded_by(store, "b") == "a"
