"""The opening of a reader: on an earlier reader's connection, or within limits.

Making a DuckDB costs some 20 ms, emptying one 2, its views 6. So a reader without limits takes a
connection left by an earlier one, as it is if it shows the same relations.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

from kappa.base.duck import Connection, DuckError
from kappa.base.scratch import make_spill_folder
from kappa.base.sql import quoted
from kappa.serving.query.reader.reader import Limits, Reader, Shown
from kappa.state.files.duckdb_access import NO_ACCESS, Access, open_over_files, renew_access


class _Idle(NamedTuple):
    """A connection that a reader has left: how many have used it, and its access to buckets."""

    connection: Connection
    shows: Shown | None
    uses: int
    access: Access


# The one that was used last is the last.
_idle: list[_Idle] = []
_idle_changes = threading.Lock()
_MOST_IDLE = 16
# Then another is made: DuckDB remembers each file of a bucket that it has met.
_MOST_USES = 1_000
_MADE = """
select 'schema', schema_name from duckdb_schemas()
where not internal and database_name = 'memory'
union all
select 'view', view_name from duckdb_views() where not internal and schema_name = 'main'
"""


def open_reader(limits: Limits | None, *, served: bool, showing: Sequence[object] = ()) -> Reader:
    """Opens a reader of nothing yet. Without limits, it may show `showing` already.

    Its attribute `shows` has the relations that it shows. `served`: some pipeline is served.
    """
    folder = None if limits is None else make_spill_folder(limits.folder)
    found = _one_idle(tuple(showing)) if limits is None else None
    connection, shows, uses, access = found or _Idle(open_over_files(), None, 0, NO_ACCESS)

    def renew() -> None:
        nonlocal access
        access = renew_access(connection, access, remembers=True)

    reader = Reader(
        connection,
        served=served,
        folder=folder,
        seconds=None if limits is None else limits.seconds,
        leave=lambda connection, shows: _keep(_Idle(connection, shows, uses + 1, access)),
    )
    reader.shows, reader.renew = shows, renew
    try:
        if limits is not None and folder is not None:
            for setting in limits.settings(folder):
                reader.command(setting)
    except BaseException:
        reader.close()
        raise
    return reader


def _forget_idle() -> None:
    """Leaves the connections of the parent alone: their threads are not in a forked process."""
    global _idle, _idle_changes  # a fork has them anew
    _of_the_parent.append(_idle)
    _idle, _idle_changes = [], threading.Lock()


# To be closed by nobody.
_of_the_parent: list[list[_Idle]] = []
os.register_at_fork(after_in_child=_forget_idle)


def _one_idle(showing: Shown) -> _Idle | None:
    """Returns a connection of an earlier reader, and what it shows: `showing`, or nothing."""
    with _idle_changes:
        if not _idle:
            return None
        place = next((place for place, each in enumerate(_idle) if each.shows == showing), 0)
        found = _idle.pop(place)
    if found.shows == showing:
        return found
    try:
        made = found.connection.execute(_MADE).fetchall()
        found.connection.execute(
            "; ".join(f"drop {kind} {quoted(name)} cascade" for kind, name in made) or "select 1"
        )
    except DuckError:
        found.connection.close()
        return None
    return found._replace(shows=())


def _keep(left: _Idle) -> None:
    """Keeps a connection for the next reader."""
    with _idle_changes:
        if len(_idle) < _MOST_IDLE and left.uses < _MOST_USES:
            _idle.append(left)
            return
    left.connection.close()
