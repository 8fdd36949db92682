"""A session: many queries of one user over a snapshot that stays pinned.

Queries run in confined processes, which can read only the files of the pinned snapshot. So all
answers of a session are computed at the same frontiers, until another snapshot is pinned.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Self

from kappa.base.duck import sql_words
from kappa.base.errors import KappaError
from kappa.serving.query.pin.catalog import pin_moment
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.sql_rules import REFUSED_FUNCTIONS, TABLE_FUNCTIONS
from kappa.serving.query.sandbox.question import Allowance, Busy, Question, Reply
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.serving.query.tables import ServedTable, tables_of_snapshot
from kappa.state.store import Store


class QuerySession:
    """A pinned snapshot, and the confined processes that answer queries over the snapshot."""

    def __init__(self, store: Store, allowance: Allowance, *, lease_seconds: float) -> None:
        """Pins the snapshot that is served now. `allowance` limits each query."""
        self._store = store
        self._lease_seconds = lease_seconds
        self._sandbox = Sandbox(allowance)
        self._pin = ExitStack()
        # The moment of the past that is pinned, or None.
        self.when: Past | None = None
        self._pinned = self._pin_moment(None)

    @property
    def snapshot(self) -> Snapshot:
        """Returns the snapshot that queries read."""
        return self._pinned.snapshot

    def start_processes(self) -> None:
        """Starts processes in advance, so that the first queries need not wait for their start."""
        self._sandbox.start_processes()

    def pin_snapshot(self, when: Past | None = None) -> None:
        """Pins the present snapshot, or a snapshot of the past, instead of the previous snapshot.

        If this fails, the previous snapshot stays pinned. Raises the errors of `pin_at`.
        """
        before = self._pin
        self._pin = ExitStack()
        try:
            self._pinned = self._pin_moment(when)
        except BaseException:
            self._pin = before
            raise
        self.when = when
        _release(before)

    def list_tables(self) -> tuple[ServedTable, ...]:
        """Lists the tables and views of the snapshot, without their numbers of rows."""
        return tables_of_snapshot(self.snapshot, self._store)

    def ask_query(self, question: Question, *, client: Client | None = None) -> Reply:
        """Answers a query from the pinned snapshot.

        If the lease on the snapshot has ended, for example because the machine was suspended,
        another snapshot of the same moment is pinned. Raises the errors of `Sandbox.ask_query`.
        """
        try:
            return self._sandbox.ask_pinned(self._store, self._pinned, question, client=client)
        except (TooMuch, Busy):
            raise
        except KappaError:
            # A file that was collected meanwhile looks like any other error.
            if self._pinned.is_kept():
                raise
        self.pin_snapshot(self.when)
        return self._sandbox.ask_pinned(self._store, self._pinned, question, client=client)

    def close(self) -> None:
        """Ends the processes, and releases the lease on the snapshot."""
        self._sandbox.close()
        _release(self._pin)

    def __enter__(self) -> Self:
        """Returns the session itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the session."""
        self.close()

    def _pin_moment(self, when: Past | None) -> PinnedSnapshot:
        return self._pin.enter_context(
            pin_moment(self._store, when, lease_seconds=self._lease_seconds)
        )


def _release(pin: ExitStack) -> None:
    # A lease that could not be given up ends by itself.
    with suppress(KappaError):
        pin.close()


def known_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns two tuples: the functions that a confined query may call, and DuckDB's keywords."""
    functions, keywords = sql_words()
    return tuple(sorted({*functions, *TABLE_FUNCTIONS} - REFUSED_FUNCTIONS)), keywords
