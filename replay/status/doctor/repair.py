"""Repairs a root while no supervisor runs: moves aside the files that are given up."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import Conflict
from kappa.replay.status.doctor.examine import Damage
from kappa.state.build import birth_copy, birth_name
from kappa.state.documents import note_of
from kappa.state.frontier import frontier_records
from kappa.state.kept_frontiers import kept_numbers
from kappa.state.lock import Lock
from kappa.state.root import LOCK, NAME, ROOT_COPY, lock_of
from kappa.state.store import Store


def repair_root(store: Store, damages: Iterable[Damage]) -> tuple[str, ...]:
    """Moves aside the files that the damages name, in descending order of names.

    If a file has a copy, the copy takes its place. Returns the new paths of the moved files. No
    supervisor can start during the repair. Raises Conflict if a supervisor is up.
    """
    names = [name for damage in damages for name in damage.names]
    # The note on the newest record goes with a newest record that is given up.
    notes = {note_of(name.rpartition("/")[0]) for name in names} - {*names}
    builds = sorted({name.split("/")[1] for name in names if _is_of_frontiers(name)})
    # But for frontiers: theirs say which numbers readers know.
    kept = {frontier_records(store, build).note for build in builds}
    moved = list[str | None]()
    try:
        if NAME in names:
            # The root's record of itself comes first: in a copy nothing else is moved.
            names.remove(NAME)
            with Lock(store.local.path(LOCK), what="kappa"):
                moved.append(store.set_aside(NAME))
                store.put(NAME, _copy_of(store, ROOT_COPY))
        with lock_of(store, LOCK, what="kappa"):
            shown = {build: _note_shown(store, build) for build in builds}
            moved += [
                store.set_aside(name) or store.local.set_aside(name)
                for name in sorted({*names} - kept, reverse=True)
            ]
            store.local.delete(*notes - kept)
            for build, number in shown.items():
                _go_on_behind(store, build, number)
            for name in names:
                build = name.split("/")[1] if name.startswith("builds/") else ""
                if build and name == birth_name(build):
                    store.put(name, _copy_of(store, birth_copy(build)))
    except Conflict as error:
        raise Conflict(
            "kappa is up, and uses the files that a repair would move aside",
            hint="stop it first: kappa down && kappa doctor --repair",
        ) from error
    return tuple(path for path in moved if path is not None)


def _copy_of(store: Store, name: str) -> bytes:
    content = store.get(name)
    assert content is not None, "what is moved aside has a copy"
    return content


def _is_of_frontiers(name: str) -> bool:
    """Returns True if `name` is a frontier, or the file with a build's last frontier number."""
    return name.startswith("builds/") and name.split("/")[2] in {"frontier", "frontier.newest"}


def _note_shown(store: Store, build: str) -> int:
    """Determines, stores and returns the highest frontier number that a build has used."""
    records = frontier_records(store, build)
    shown = max(0, records.noted_number(), *records.numbers(), *kept_numbers(store, build))
    records.note_last(shown)
    return shown


def _go_on_behind(store: Store, build: str, shown: int) -> None:
    """Publishes the newest frontier of a build again, under a number that no reader has seen.

    Followers with a cursor, and readers on other hosts, identify a frontier by its number. So no
    number is used twice. If no frontier is left, the build's job creates a frontier, with a number
    above `shown`.
    """
    records = frontier_records(store, build)
    left = max(records.numbers(), default=shown)
    newest = records.get(left) if left < shown else None
    if newest is not None:
        number, epoch = shown + 1, newest.epoch + 1
        records.put(number, replace(newest, number=number, epoch=epoch, published_at=now()))
