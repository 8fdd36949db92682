"""A project as a Python program reads it: the changes of the project's tables.

The program needs no server: like `kappa changes`, it reads the root of the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kappa.base.settings import Settings, load_settings
from kappa.serving.outlets.changes.change_set import ChangeSet
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.query.reader.reader import Limits
from kappa.state.store import Store, open_store

_WAIT_SECONDS = 1.0


class OpenProject:
    """The project whose kappa.toml is in a folder, or in a folder above."""

    def __init__(self, folder: str | Path = ".") -> None:
        """Opens the project.

        Raises SettingsError if kappa.toml does not exist or cannot be read.
        """
        self._settings = load_settings(Path(folder))
        self._store = open_store(self._settings)

    def changes(
        self,
        table: str,
        *,
        since: Cursor | str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = True,
    ) -> Iterator[ChangeSet]:
        """Yields the rows of a served table as a change set, then each net change.

        `since`: the cursor of the last change set that was used (`change_set.head.cursor`); the
        changes after that cursor follow. `where` and `columns` are as for `kappa changes`. Without
        `follow` the changes end at the present state of the table. A change set is open until the
        caller asks for the next one. Raises UsageError if the table is not served.

        Example:
            for change_set in OpenProject().changes("page_hits"):
                for change in change_set.rows():
                    print(change.op, change.before, change.after)
        """
        follower = make_follower(
            self._settings,
            self._store,
            table,
            since=Cursor.parse(since) if isinstance(since, str) else since,
            chosen=Filter(None if columns is None else tuple(columns), where),
        )
        while True:
            with follower.next_change_set() as change_set:
                if change_set is not None:
                    yield change_set
            if not follow:
                return
            while not follower.wait_for_change(_WAIT_SECONDS):
                pass


def make_follower(
    settings: Settings,
    store: Store,
    table: str,
    *,
    since: Cursor | None = None,
    chosen: Filter | None = None,
) -> Follower:
    """Makes a follower by the settings of a project.

    Raises UsageError as Follower does.
    """
    return Follower(
        store,
        table,
        since=since,
        chosen=chosen,
        lease_seconds=settings.rollout.lease_seconds,
        keep_seconds=settings.changes.keep_seconds,
        limits=Limits.of(settings.verify, store),
    )
