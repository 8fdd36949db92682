"""A build whose frontiers are lost continues from the marks of its tables (I9)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from crashing import Doom, World
from writers import make_mark

from kappa.base.errors import Damaged
from kappa.engine.write.publisher import common, restored_frontier
from kappa.state.build import read_birth, recent_names, table_path
from kappa.state.frontier import Frontiers
from kappa.state.mark import Mark
from kappa.state.store import Store


def marks(**versions: Mapping[int, int]) -> Mapping[str, list[tuple[int, Mark]]]:
    """Returns the versions of each table, with marks of the given slice numbers."""
    return {
        name: [
            (version, make_mark(number)) for version, number in sorted(each.items(), reverse=True)
        ]
        for name, each in versions.items()
    }


def test_the_newest_slice_that_all_tables_have_is_the_frontier() -> None:
    found = common(marks(a={3: 5, 4: 6, 5: 6}, b={7: 4, 8: 5, 9: 5}))

    assert found == (make_mark(5), {"a": 3, "b": 9})
    assert common(marks(a={3: 5}, b={8: 6})) is None
    assert common({}) is None


def served(tmp_path: Path) -> tuple[World, str]:
    world = World(Store(tmp_path), Doom())
    world.serve("one", 16)
    return world, world.state().serving["ships"]


def lose_frontiers(world: World, build: str) -> int:
    newest = Frontiers(world.store, build).newest()
    assert newest is not None
    for name in world.store.names(f"builds/{build}/frontier"):
        world.store.delete(name)
    return newest.number


def test_a_build_whose_frontiers_are_lost_goes_on_where_its_tables_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, build = served(tmp_path)
    lose_frontiers(world, build)
    world.log.ensure(30)

    world.begin()
    for _ in range(5):
        world.round()
        # Nothing that a reader has seen goes back, and rows are right.
        world.look()
    world.end()

    assert world.shown[1].equals(world.log.end(["ships"]))
    assert f"the frontiers of build {build} were lost" in capsys.readouterr().err


def test_where_contributions_wait_beside_a_table_none_can_be_made(tmp_path: Path) -> None:
    world, build = served(tmp_path)
    lose_frontiers(world, build)
    recent = Path(table_path(world.store, build, recent_names("ships")[0]))
    recent.mkdir()
    (recent / "part-0.parquet").touch()

    with pytest.raises(Damaged, match="contributions wait beside table ships") as caught:
        restored_frontier(world.store, read_birth(world.store, build))
    assert "kappa replay" in caught.value.hint
