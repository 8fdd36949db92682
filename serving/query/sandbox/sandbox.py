"""The sandbox: untrusted SQL runs in confined processes, the workers.

A worker can read only the tables of one snapshot. The server sends a query to the worker. The
worker reports the tables that the query names, and the server checks the files of these tables, or
fetches the files from a bucket. The server then reads the pieces of the answer without parsing
them, until the answer is complete. The server kills a worker that takes too long. A worker answers
one query at a time, and only queries of the same reader. If a used worker could not answer a query,
the query is sent to a new worker, so that no query fails because of an earlier query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Self
from weakref import WeakKeyDictionary

from kappa.base.errors import Conflict, Damaged, KappaError, UsageError
from kappa.serving.access.roles import Forbidden
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.shared_pins import give_up_pin
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.query_files import Named, ensure_files_whole, files_named
from kappa.serving.query.sandbox.fair_queue import FairPlaces
from kappa.serving.query.sandbox.file_cache import FilesInPlace, files_for_query
from kappa.serving.query.sandbox.processes import QueryWorker
from kappa.serving.query.sandbox.question import Allowance, Busy, Question, Reply
from kappa.serving.query.sandbox.workers import OpenedSnapshot, WorkerPool
from kappa.state.store import Store

# A lease is lost only if the server pauses for longer than the lease lasts: not thrice by chance.
_ATTEMPTS = 3


class Sandbox:
    """Answers untrusted queries in confined processes.

    Any thread may use the sandbox. The owner must close the sandbox.
    """

    def __init__(
        self,
        allowance: Allowance,
        *,
        program: Sequence[str] = ("-m", "kappa.serving.query.sandbox.fork_server"),
    ) -> None:
        """Sets the limits of queries, and starts no process yet.

        `start_processes` or the first query starts the processes. `program` contains the arguments
        with which Python runs the fork server.
        """
        self.allowance = allowance
        # For servers whose clients wait in a loop; a thread waits at its slot.
        self.places = FairPlaces(allowance)
        self._slots = threading.BoundedSemaphore(allowance.at_once)
        self._workers = WorkerPool(allowance, program)
        # The snapshots that served when a query was last asked.
        self._served: WeakKeyDictionary[Store, Snapshot] = WeakKeyDictionary()

    def start_processes(self) -> None:
        """Starts processes in advance, so that the first query need not wait for their start."""
        self._workers.start_processes()

    def ask_query(
        self,
        store: Store,
        question: Question,
        *,
        lease_seconds: float = 60.0,
        client: Client | None = None,
    ) -> Reply:
        """Answers a query from a snapshot of the live builds.

        Queries share a pinned snapshot until the frontier moves. If the snapshot's files were not
        kept until the end of the query, the query runs again on a newer snapshot. Raises UsageError
        if the query is wrong or not allowed, TooMuch if the query exceeds its limits, and Busy if
        too many queries run. Raises ClientLeft if the client leaves; the query then ends.
        """
        attempt = 0
        while True:
            attempt += 1
            with pin_served(store, lease_seconds=lease_seconds, shared=True) as pinned:
                self._note_served(store, pinned.snapshot)
                try:
                    return self.ask_pinned(store, pinned, question, client=client)
                except (TooMuch, Busy):
                    raise
                except KappaError:
                    # As in query.ask: a file collected meanwhile looks like any other error.
                    if pinned.is_kept() or attempt == _ATTEMPTS:
                        raise

    def ask_pinned(
        self,
        store: Store,
        pinned: PinnedSnapshot,
        question: Question,
        *,
        client: Client | None = None,
    ) -> Reply:
        """Answers a query from a snapshot that the caller keeps pinned.

        Raises the errors of `ask_query`. Raises Conflict if the snapshot's files were not kept
        until the end.
        """
        client = client or Client()
        with self._place(store, pinned, question, client) as (opened, files):
            check = _file_check(store, opened, files, client)
            reply = self._answer(opened, client, self._request(store, opened, question), check)
        try:
            pinned.confirm_kept()
        except Conflict:
            reply.body.close()
            raise
        return reply

    def close(self) -> None:
        """Ends the processes, and releases the pinned snapshots that no query uses."""
        self._workers.close()
        for store in list(self._served):
            give_up_pin(store)

    def __enter__(self) -> Self:
        """Returns the sandbox itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the sandbox."""
        self.close()

    def _note_served(self, store: Store, snapshot: Snapshot) -> None:
        before = self._served.get(store)
        if before is not snapshot:
            self._served[store] = snapshot
            if before is not None:
                self._workers.forget_older(before, snapshot)

    @contextmanager
    def _place(
        self, store: Store, pinned: PinnedSnapshot, question: Question, client: Client
    ) -> Iterator[tuple[OpenedSnapshot, FilesInPlace]]:
        """Occupies a place for a query during the block; yields the query's snapshot and files.

        Only a limited number of queries may run at once, each in one place. Raises Busy if no place
        is free within the time that a query may take.
        """
        with files_for_query(store) as files:
            opened = self._workers.open_snapshot(store, pinned.snapshot, question.reader, files)
            if not client.take_turn(self._slots, self.allowance.seconds):
                raise Busy(
                    f"{self.allowance.at_once} queries are being answered, "
                    f"and none has ended within {self.allowance.seconds:g} s",
                    hint="ask again in a while; serve.queries in kappa.toml lets more run at once",
                )
            try:
                yield opened, files
            finally:
                self._slots.release()

    def _answer(
        self,
        opened: OpenedSnapshot,
        client: Client,
        request: bytes,
        check: Callable[[Iterable[Named]], None],
    ) -> Reply:
        """Returns the answer of a worker to a query.

        If a used worker could not answer the query, the query is sent to a new worker.
        """
        is_new = False
        while True:
            with self._worker(opened, client, is_new=is_new) as worker:
                was_used = worker.answered > 0
                try:
                    return worker.read_reply(request, self.allowance, opened.told, check)
                except KappaError as error:
                    if not was_used or not _may_be_of_worker(worker, error):
                        raise
            is_new = True

    @contextmanager
    def _worker(
        self, opened: OpenedSnapshot, client: Client, *, is_new: bool
    ) -> Iterator[QueryWorker]:
        client.ensure_here()
        worker = self._workers.take_worker(opened, is_new=is_new)
        try:
            with client.calling_on_leave(worker.kill_process):
                yield worker
        finally:
            self._workers.leave_worker(opened, worker)

    def _request(self, store: Store, opened: OpenedSnapshot, question: Question) -> bytes:
        return json.dumps(
            {
                "sql": question.sql,
                "form": question.form,
                "wire": asdict(question.wire),
                "rows": _bounded(question.rows, self.allowance.rows),
                "bytes": _bounded(question.bytes, self.allowance.bytes),
                "names": question.names,
                "waits": not store.is_on_disk or opened.waits_for_files(store),
            }
        ).encode()


def _bounded(asked: int | None, allowed: int) -> int:
    return allowed if asked is None else min(asked, allowed)


def _may_be_of_worker(worker: QueryWorker, error: KappaError) -> bool:
    """Returns True if the cause of an error may be the worker, and not the query.

    In this case, a new worker might answer the query without this error.
    """
    return worker.has_run_out or not isinstance(error, UsageError | Forbidden | Damaged)


def _file_check(
    store: Store, opened: OpenedSnapshot, files: FilesInPlace, client: Client
) -> Callable[[Iterable[Named]], None]:
    """Returns a function that fetches and checks the files of the tables that a query names."""

    def ensure_files(named: Iterable[Named]) -> None:
        named = tuple(named)
        files.fetch_files(files_named(opened.relations, named), client)
        copies = None if files.folder is None else files.local_path
        try:
            ensure_files_whole(store, opened.snapshot, opened.relations, named, copies)
        except Damaged:
            # Perhaps the copy alone is.
            files.drop_files(files_named(opened.relations, named))
            raise

    return ensure_files
