"""Sends the queries of sessions to the sandbox, and pins the snapshots of transactions.

This is the only module of the package that runs queries. The sandbox runs only a limited number of
queries at the same time, for all sessions together. Users get these places in turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeVar

from kappa.base.errors import KappaError
from kappa.base.units import size
from kappa.serving.access.roles import Identity
from kappa.serving.postgres.messages import SNAPSHOT_TOO_OLD, PostgresError
from kappa.serving.query.pin.catalog import pin_at, pin_moment
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.pin.pin_places import PinPlaces
from kappa.serving.query.pin.snapshot import (
    PinnedSnapshot,
    Snapshot,
    head_of,
    readable_snapshot,
)
from kappa.serving.query.reader.client import Client
from kappa.serving.query.render import json_value
from kappa.serving.query.sandbox.question import Question, Reply
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

_Found = TypeVar("_Found")

# The most bytes of answers that clients have asked for and not read: they are files of this host.
MOST_UNREAD_BYTES = 1 << 30
_PINNING_THREADS = 4
# The first bytes of a row's message: a letter and the length.
_HEAD = 5
_PIECE_BYTES = 1 << 16


@dataclass(slots=True)
class TransactionPin:
    """A snapshot that is pinned for a client's transaction."""

    client: str
    pinned: PinnedSnapshot
    closing: ExitStack

    @property
    def snapshot(self) -> Snapshot:
        """Returns the pinned snapshot."""
        return self.pinned.snapshot


def snapshot_text(snapshot: Snapshot, reader: Identity) -> str:
    """Describes a snapshot as JSON, limited to the tables that `reader` may read.

    The JSON contains the generation, and the build, offsets and versions of each pipeline.
    """
    head = head_of(readable_snapshot(snapshot, reader.tables))
    return json.dumps(json_value(head), ensure_ascii=False)


def ended_snapshot_error(snapshot: Snapshot, reader: Identity) -> PostgresError:
    """Creates the error for a transaction whose snapshot is no longer pinned.

    The message names only the pipelines that `reader` may read.
    """
    snapshot = readable_snapshot(snapshot, reader.tables)
    serving = ", ".join(
        f"{pipeline} at {snapshot.frontiers[build].offsets}"
        for pipeline, build in snapshot.serving.items()
    )
    return PostgresError(
        SNAPSHOT_TOO_OLD,
        f"the snapshot of this transaction has ended: generation {snapshot.generation}, {serving}",
        hint="ROLLBACK, then BEGIN: the next query takes a new snapshot",
    )


class SessionAnswers:
    """Sends the queries of sessions to a sandbox, from the server's event loop."""

    def __init__(self, store: Store, sandbox: Sandbox, *, lease_seconds: float) -> None:
        self._store = store
        self._sandbox = sandbox
        self._lease_seconds = lease_seconds
        at_once = sandbox.allowance.at_once
        self._threads = ThreadPoolExecutor(at_once, "postgres")
        self._pinning = ThreadPoolExecutor(_PINNING_THREADS, "postgres pins")
        self._places = PinPlaces()
        self._unread_bytes = 0

    @property
    def seconds(self) -> float:
        """Returns the time that a query may take, in seconds."""
        return self._sandbox.allowance.seconds

    async def ask(
        self, question: Question, *, pin: TransactionPin | None, moment: Past | None, client: Client
    ) -> Reply:
        """Answers a query from a transaction's pinned snapshot, or from a separate snapshot.

        `question` is the query, and `pin` is the pinned snapshot of the transaction. If `pin` is
        None, this method pins a snapshot of `moment` for this query only; if `moment` is also None,
        it pins the snapshot that is served now. Raises KappaError as `Sandbox.ask_query` does,
        ClientLeft if the client leaves, and PostgresError if the transaction's snapshot is no
        longer pinned.
        """
        async with self._sandbox.places.take_place(question.reader.name):
            client.ensure_here()
            return await self._in_thread(
                self._threads, partial(self._ask, question, pin, moment, client)
            )

    def rows_of(self, reply: Reply) -> AnswerRows:
        """Returns the rows of an answer from the sandbox.

        The answer's file occupies space on this host until the caller closes the returned rows.
        Raises PostgresError if the unread answers of all sessions already occupy too much space.
        """
        if self._unread_bytes + reply.size > MOST_UNREAD_BYTES:
            reply.body.close()
            raise PostgresError(
                "53100",
                f"answers that clients have not read take {size(self._unread_bytes)} here",
                hint="read cursors to their end, and close them: CLOSE ALL",
            )
        self._unread_bytes += reply.size

        def give_back() -> None:
            self._unread_bytes -= reply.size

        return AnswerRows(
            reply.body,
            reply.columns,
            reply.rows,
            truncated=reply.truncated,
            on_close=give_back,
        )

    async def pin(self, client: str, moment: Past | None) -> TransactionPin:
        """Pins a snapshot for a client's transaction, as of a moment of the past or of now.

        `moment` is None for now. Raises PostgresError if this client or all clients together have
        too many pinned snapshots, and the errors of `pin_at`.
        """
        if (reason := self._places.take(client)) is not None:
            raise PostgresError(
                "53000", reason, hint="end transactions that wait: COMMIT; or read without BEGIN"
            )
        try:
            return await self._in_thread(self._pinning, partial(self._pin, client, moment))
        except BaseException:
            self._places.give_back(client)
            raise

    def release(self, pin: TransactionPin) -> None:
        """Releases a transaction's pinned snapshot, in the background."""
        self._places.give_back(pin.client)
        self._pinning.submit(_close_pin, pin)

    def close(self) -> None:
        """Stops the threads, and waits until all snapshots passed to `release` are released."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pinning.shutdown(wait=True)

    async def _in_thread(self, threads: ThreadPoolExecutor, work: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _ask(
        self, question: Question, pin: TransactionPin | None, moment: Past | None, client: Client
    ) -> Reply:
        if pin is not None:
            try:
                return self._sandbox.ask_pinned(self._store, pin.pinned, question, client=client)
            except KappaError as error:
                # A file that was collected meanwhile looks like any other error.
                if pin.pinned.is_kept():
                    raise
                raise ended_snapshot_error(pin.snapshot, question.reader) from error
        if moment is None:
            return self._sandbox.ask_query(
                self._store, question, lease_seconds=self._lease_seconds, client=client
            )
        with pin_at(self._store, moment, lease_seconds=self._lease_seconds) as pinned:
            return self._sandbox.ask_pinned(self._store, pinned, question, client=client)

    def _pin(self, client: str, moment: Past | None) -> TransactionPin:
        with ExitStack() as opening:
            pinned = opening.enter_context(
                pin_moment(self._store, moment, lease_seconds=self._lease_seconds)
            )
            return TransactionPin(client, pinned, opening.pop_all())


def _close_pin(pin: TransactionPin) -> None:
    # A lease that could not be given up ends by itself.
    with suppress(Exception):
        pin.closing.close()


class AnswerRows:
    """The rows of an answer, encoded as messages of the Postgres protocol.

    The messages can be read in several parts. `columns` describes the columns of the rows, and
    `given` is the number of rows read so far.
    """

    def __init__(
        self,
        body: IO[bytes],
        columns: Sequence[Mapping[str, Any]],
        rows: int,
        *,
        truncated: bool = False,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Wraps the file `body`, which contains the messages of `rows` rows.

        `truncated` is True if the answer lacks rows because of its limits. `on_close` is called
        once, when the rows are closed.
        """
        self.body = body
        self._on_close = on_close
        self.columns = columns
        self.given = 0
        self._rows = rows
        self._truncated = truncated

    def take(self, count: int | None) -> Iterator[bytes]:
        """Yields the messages of the next `count` rows, or of all remaining rows.

        If `count` is None, all remaining rows are yielded.

        If the answer lacks rows because of its limit of rows or bytes, and the caller requests more
        rows than are left, raises PostgresError after the last row.
        """
        left = self._rows - self.given
        if count is None or count >= left:
            self.given = self._rows
            while piece := self.body.read(_PIECE_BYTES):
                yield piece
            if self._truncated and (count is None or count > left):
                raise _cut_error(self._rows)
            return
        for _ in range(count):
            head = self.body.read(_HEAD)
            self.given += 1
            yield head + self.body.read(int.from_bytes(head[1:], "big") - 4)

    def close(self) -> None:
        """Deletes the file that contains the rows. A second call does nothing."""
        if not self.body.closed:
            self.body.close()
            self._on_close()


def _cut_error(rows: int) -> PostgresError:
    return PostgresError(
        "54000",
        f"the answer has more than the {rows} rows that were sent: the limit of rows or bytes ends "
        "it",
        hint="select fewer rows or columns; serve.query_rows and serve.query_bytes in kappa.toml "
        "allow more",
    )
