"""The sandbox: untrusted SQL runs in its own process.

The process has the tables of the snapshot only. The server sends the request. The process reports
the tables that the query names, and the server checks the files of these tables, or fetches the
files from a bucket. The server reads pieces of the answer until the answer is complete, never
parses a piece, and kills a process that takes too long. A process is started before it is needed,
used for a single query, and ends with that query.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Self

from kappa.base.errors import Conflict, Damaged, KappaError
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import (
    PinnedSnapshot,
    Snapshot,
    head_of,
    readable_snapshot,
)
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.errors import RetiredRelation, TooMuch
from kappa.serving.query.reader.query_files import (
    Named,
    are_all_files_checked,
    ensure_files_whole,
    files_named,
)
from kappa.serving.query.reader.relations import (
    Relations,
    files_at,
    readable_relations,
    relations_of,
    retired_relations,
)
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.render import json_value
from kappa.serving.query.sandbox.file_cache import FilesInPlace, files_for_query
from kappa.serving.query.sandbox.processes import ForkServer, QueryProcess
from kappa.serving.query.sandbox.question import MOST_FILES, Allowance, Busy, Question, Reply
from kappa.state.store import Store

# A child that dies before reading its request did nothing: the next child gets the request.
_ATTEMPTS = 3
_SPARES = 2


class Sandbox:
    """The processes that answer untrusted queries.

    Any thread may use the sandbox; the owner closes it.
    """

    def __init__(
        self,
        allowance: Allowance,
        *,
        program: Sequence[str] = ("-m", "kappa.serving.query.sandbox.fork_server"),
    ) -> None:
        """Starts no process yet: the first query, or `start`, does.

        `program` holds the arguments with which Python runs the fork server.
        """
        self.allowance = allowance
        self._program = program
        self._slots = threading.BoundedSemaphore(allowance.at_once)
        self._lock = threading.Lock()
        self._nursery: ForkServer | None = None
        self._spares: deque[QueryProcess] = deque()

    def start_processes(self) -> None:
        """Starts the first processes before a query needs a process."""
        with self._lock:
            self._fill_spares()

    def ask_query(
        self,
        store: Store,
        question: Question,
        *,
        lease_seconds: float = 60.0,
        client: Client | None = None,
    ) -> Reply:
        """Answers a query from a snapshot of the live builds.

        Like `kappa.serving.query.query.ask_snapshot`, this method takes a newer snapshot if the
        first was not kept until the end. Raises UsageError if the query is wrong or not allowed,
        TooMuch if the query exceeds its limits, and Busy if all places for queries are taken. If
        the client leaves, the query ends, and ClientLeft is raised.
        """
        attempt = 0
        while True:
            attempt += 1
            with pin_served(store, lease_seconds=lease_seconds) as pinned:
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

        Raises as `ask` does, and Conflict if the snapshot was not kept.
        """
        snapshot = pinned.snapshot
        relations = readable_relations(
            relations_of(snapshot, store), question.reader.tables, tables_named
        )
        _ensure_few_files(relations)
        with files_for_query(store) as files:
            reply = self._answer_from(
                store, question, relations, snapshot, files, client or Client()
            )
        try:
            pinned.confirm_kept()
        except Conflict:
            reply.body.close()
            raise
        return reply

    def close(self) -> None:
        """Ends the fork server and its children."""
        with self._lock:
            while self._spares:
                self._spares.popleft().end_process()
            if self._nursery is not None:
                self._nursery.end_server()
                self._nursery = None

    def __enter__(self) -> Self:
        """Returns the sandbox itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the sandbox."""
        self.close()

    def _answer_from(
        self,
        store: Store,
        question: Question,
        relations: Sequence[Relations],
        snapshot: Snapshot,
        files: FilesInPlace,
        client: Client,
    ) -> Reply:
        def see_to(named: Iterable[Named]) -> None:
            named = tuple(named)
            files.fetch_files(files_named(relations, named), client)
            copies = None if files.folder is None else files.local_path
            try:
                ensure_files_whole(store, snapshot, relations, named, copies)
            except Damaged:
                # Perhaps the copy alone is.
                files.drop_files(files_named(relations, named))
                raise

        readable = question.reader.tables
        left = [
            each
            for each in retired_relations(relations, store)
            if readable.allows(each.pipeline, each.name)
        ]
        waits = files.folder is not None or not are_all_files_checked(store, relations)
        here = (
            relations
            if files.folder is None
            else readable_relations(
                relations_of(snapshot, store, listed=partial(_placed_files, files)),
                readable,
                tables_named,
            )
        )
        told = readable_snapshot(snapshot, readable)
        if not client.take_turn(self._slots, self.allowance.seconds):
            raise Busy(
                f"{self.allowance.at_once} queries are being answered, "
                f"and none has ended within {self.allowance.seconds:g} s",
                hint="ask again in a while; serve.queries in kappa.toml lets more run at once",
            )
        try:
            request = json.dumps(
                {
                    **self._request_document(question, here, left, told),
                    "folder": None if files.folder is None else str(files.folder),
                    "waits": waits,
                }
            ).encode()
            for _ in range(_ATTEMPTS):
                with self._spare_process() as child, client.calling_on_leave(child.kill_process):
                    if child.accepts_request(request):
                        return child.read_reply(self.allowance, told, see_to)
            raise KappaError(
                "no process for the query could be started",
                hint="see whether the machine has memory left; "
                "kappa logs supervisor shows what was said",
            )
        finally:
            self._slots.release()

    def _request_document(
        self,
        question: Question,
        relations: Sequence[Relations],
        left: Sequence[RetiredRelation],
        snapshot: Snapshot,
    ) -> Mapping[str, Any]:
        return {
            "sql": question.sql,
            # The name of a reader who may not read all tables, for the sentence that refuses one.
            "reader": "" if question.reader.tables.is_all else question.reader.name,
            "form": question.form,
            "head": json_value(head_of(snapshot)),
            "relations": [
                {
                    "pipeline": each.pipeline,
                    "tables": {
                        name: {"sql": table.sql, "paths": list(table.paths)}
                        for name, table in each.tables.items()
                    },
                    "views": dict(each.views),
                    "hidden": sorted(each.hidden),
                }
                for each in relations
            ],
            "left": [asdict(each) for each in left],
            "memory": self.allowance.memory,
            "cpu_seconds": max(1, round(self.allowance.seconds)),
            "rows": _bounded(question.rows, self.allowance.rows),
            "bytes": _bounded(question.bytes, self.allowance.bytes),
        }

    @contextlib.contextmanager
    def _spare_process(self) -> Iterator[QueryProcess]:
        with self._lock:
            self._fill_spares()
            child = self._spares.popleft()
            # A child for the next query starts now.
            self._fill_spares()
        try:
            yield child
        finally:
            child.end_process()

    def _fill_spares(self) -> None:
        if self._nursery is None or not self._nursery.is_alive():
            while self._spares:
                self._spares.popleft().end_process()
            if self._nursery is not None:
                self._nursery.end_server()
            self._nursery = ForkServer(self._program)
        while len(self._spares) < min(_SPARES, self.allowance.at_once):
            self._spares.append(self._nursery.make_child())


def _bounded(asked: int | None, allowed: int) -> int:
    return allowed if asked is None else min(asked, allowed)


def _placed_files(
    files: FilesInPlace, table: str, version: int, vouched: str | None
) -> tuple[str, ...]:
    return tuple(map(files.local_path, files_at(table, version, vouched)))


def _ensure_few_files(relations: Sequence[Relations]) -> None:
    files = {
        f"{each.pipeline}.{name}": len(table.paths)
        for each in relations
        for name, table in each.tables.items()
    }
    if sum(files.values()) > MOST_FILES:
        most = max(files, key=lambda name: files[name])
        raise TooMuch(
            f"the snapshot has {sum(files.values())} files, and a query over HTTP or of the shell "
            f"opens at most {MOST_FILES}; {most} has {files[most]} of them",
            hint=f"kappa query reads them all; the job of {most.partition('.')[0]} joins small "
            "files while it runs: kappa status",
        )
