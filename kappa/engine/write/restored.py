"""A frontier made of the tables' marks, if a build's frontier records are lost.

Every commit of a table carries the mark of the slice that was folded last. So the newest slice that
all tables have is a frontier: the mark has the offsets, log time and tally. The restored frontier
gets a number above all numbers that readers ever saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kappa.base.errors import Damaged
from kappa.state.build import Birth, folder_of_build, recent_names, table_path
from kappa.state.files.address import files_in
from kappa.state.frontier import Frontier, frontier_records
from kappa.state.kept_frontiers import kept_frontiers_of
from kappa.state.lease import read_floor
from kappa.state.mark import Mark
from kappa.state.store import Store
from kappa.tables.delta import LOG_FOLDER
from kappa.tables.versions import mark_of

# Folders that a build has as soon as it has published a frontier.
_FOLLOWS = ("floor", "kept", "legs")


def restored_frontier(store: Store, birth: Birth) -> Frontier | None:
    """Returns the frontier of a build whose frontier records are lost.

    Returns None if the build has published no frontier. The caller holds the build's lock. Raises
    Damaged if the tables have no slice in common, or if contributions wait beside a table: then
    nobody knows which contributions were drained.
    """
    if not any(store.names(f"{folder_of_build(birth.build)}/{each}") for each in _FOLLOWS):
        return None
    for table in birth.tables:
        for name in recent_names(table.name):
            path = table_path(store, birth.build, name)
            if files_in(path) or files_in(f"{path}/{LOG_FOLDER}"):
                raise _cannot(birth.build, f"contributions wait beside table {table.name}")
    marks = {
        table.name: tuple(_marks(table_path(store, birth.build, table.name)))
        for table in birth.tables
    }
    found = common(marks)
    if found is None:
        raise _cannot(birth.build, "its tables have no slice in common")
    mark, versions = found
    kept = kept_frontiers_of(store, birth.build)
    noted = frontier_records(store, birth.build).noted_number()
    last = max([read_floor(store, birth.build), noted, *(each.frontier.number for each in kept)])
    return Frontier(
        last + 1,
        birth.build,
        max((each.frontier.epoch for each in kept), default=0) + 1,
        mark.end,
        versions,
        "",
        mark.leg,
        mark.slice,
        log_time=mark.log_time,
        tally=mark.tally,
        witnesses=mark.witnesses,
        failing=kept[-1].frontier.failing if kept else {},
        heard_at=kept[-1].frontier.heard_time if kept else birth.born_at,
    )


def common(
    marks: Mapping[str, Sequence[tuple[int, Mark]]],
) -> tuple[Mark, Mapping[str, int]] | None:
    """Returns the newest common mark of all tables, and the tables' versions. Pure.

    `marks` has the versions of each table, the newest first. If several versions of a table have
    the mark, the newest version is returned. Returns None if the tables have no mark in common.
    """
    places = [{mark.place: version for version, mark in reversed(each)} for each in marks.values()]
    shared = set.intersection(*(set(each) for each in places)) if places else set()
    if not shared:
        return None
    newest = max(shared)
    mark = next(mark for each in marks.values() for _, mark in each if mark.place == newest)
    return mark, {name: each[newest] for name, each in zip(marks, places, strict=True)}


def _marks(path: str) -> Iterator[tuple[int, Mark]]:
    """Yields a table's readable versions, the newest first, with their marks."""
    for name in sorted(files_in(f"{path}/{LOG_FOLDER}"), reverse=True):
        try:
            version = int(name.removesuffix(".json"))
            yield version, mark_of(path, version)
        except (ValueError, Damaged):
            continue


def _cannot(build: str, why: str) -> Damaged:
    return Damaged(
        f"all frontiers of build {build} are lost, and none can be made of its tables: {why}",
        hint="kappa replay makes a new build of it",
    )
