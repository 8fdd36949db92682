"""A project of a hundred pipelines with a thousand tables, made by hand, for tests of the page.

Neither Spark nor a broker is needed: the files of one small table serve as the files of all tables.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from births import make_birth
from msgspec.structs import replace
from page_world import ALERTS, BY_PAGE, HITS, World

from kappa.code.code_snapshot import ensure_snapshot
from kappa.state.build import TopicBirth, put_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import CaughtUp, Receipt, Served, Staged
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.offsets import Offsets
from kappa.tables.shape import REJECTS_BIRTH

PIPELINES = 100
# And a view: ten tables and views in each pipeline.
TABLES = 9


def make_large(world: World, pipelines: int = PIPELINES) -> None:
    """Makes serving pipelines `pipe000`, `pipe001` and so on, each with its own topic."""
    first = Path(table_path(world.store, world.build("web-1"), HITS.name))
    rejects = first.with_name(REJECTS_BIRTH.name)
    names = [f"pipe{number:03}" for number in range(pipelines)]
    world.log.others = tuple(f"events_{name}" for name in names)
    serving: dict[str, str] = {}
    for number, name in enumerate(names):
        build = f"{name}-1"
        serving[name] = build
        tables = tuple(replace(HITS, name=f"{name}_t{each}") for each in range(TABLES))
        for table in tables:
            _link(first, Path(table_path(world.store, build, table.name)))
        _link(rejects, Path(table_path(world.store, build, REJECTS_BIRTH.name)))
        ensure_snapshot(world.store, build, {})
        topic = f"events_{name}"
        put_birth(
            world.store,
            make_birth(
                build,
                (*tables, REJECTS_BIRTH),
                topics=(TopicBirth(topic, topic, "retained", 1),),
                pipeline=name,
                views={f"{name}_by_page": BY_PAGE.replace("page_hits", f"{name}_t0")},
                born_at=datetime.now(UTC).isoformat(),
                alerts=tuple(
                    replace(each, name=f"{each.name}_{name}", of=f"{name}_t0") for each in ALERTS
                )
                if number % 10 == 0
                else (),
            ),
        )
        for at in (1, 2, 3):
            fold(world, name, at)
        rollout = 4 * number + 1
        receipt = Receipt(name, build, "version-1", _offsets(name, 3), None, None, first=True)
        events = (
            Staged(name, build, "version-1", ("new",)),
            CaughtUp(rollout, _offsets(name, 3)),
            world.verified(rollout, None),
            Served(rollout, number + 1, dict(serving), receipt),
        )
        for place, event in enumerate(events):
            assert world.journal.append(rollout + place, event) is not None


def fold(world: World, name: str, number: int) -> None:
    """Publishes frontier `number` of a pipeline's build, a minute after the frontier before it."""
    versions = {f"{name}_t{each}": 0 for each in range(TABLES)} | {REJECTS_BIRTH.name: 0}
    at = (datetime.now(UTC) - timedelta(minutes=max(0, 3 - number))).isoformat()
    frontier = Frontier(
        number, f"{name}-1", 1, _offsets(name, number), versions, at,
        log_time={f"events_{name}": {0: 1_790_000_000_000}},
    )  # fmt: skip
    Frontiers(world.store, f"{name}-1").publish(frontier)
    if number == 3:
        put_kept_frontier(world.store, KeptFrontierRecord(frontier))


def _offsets(name: str, count: int) -> Offsets:
    return Offsets({f"events_{name}": {0: 100 * count}})


def _link(folder: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, to, copy_function=os.link)
