"""A project as a Python program reads it: the changes of its tables.

It needs no server: like `kappa changes`, it reads the project's root.
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
    """The project whose kappa.toml is in a folder, or above it."""

    def __init__(self, folder: str | Path = ".") -> None:
        """Raises SettingsError if there is no kappa.toml, or it cannot be read."""
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
        """Yields a served table's rows as a change set, then each net change.

        `since`: the cursor of the last change set that was used (`change_set.head.cursor`); what
        follows it comes then. `where` and `columns` are as for `kappa changes`. Without `follow`
        the changes end with what is served now. A change set is open until the next one is asked
        for. Raises UsageError if the table is not served.

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
            with follower.next() as change_set:
                if change_set is not None:
                    yield change_set
            if not follow:
                return
            while not follower.wait(_WAIT_SECONDS):
                pass


def make_follower(
    settings: Settings,
    store: Store,
    table: str,
    *,
    since: Cursor | None = None,
    chosen: Filter | None = None,
) -> Follower:
    """Makes a follower by a project's settings. Raises UsageError as Follower does."""
    return Follower(
        store,
        table,
        since=since,
        chosen=chosen,
        lease_seconds=settings.rollout.lease_seconds,
        keep_seconds=settings.changes.keep_seconds,
        limits=Limits.of(settings.verify, store),
    )
