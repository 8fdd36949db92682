"""The worker processes by the snapshot that they have opened, and the start of workers.

An opened snapshot contains the data that all queries of one reader over the snapshot share: its
tables and views, and the request by which a worker opens the snapshot. A worker that has answered a
query is kept for the next query of the same reader over the same snapshot. Some processes are
started in advance, so that a new worker need not wait for its start.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Identity
from kappa.serving.query.pin.snapshot import Snapshot, head_of, readable_snapshot
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.query_files import are_all_files_checked
from kappa.serving.query.reader.relations import (
    Relations,
    files_at,
    readable_relations,
    relations_of,
    retired_relations,
)
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.render import json_value
from kappa.serving.query.sandbox.file_cache import FilesInPlace
from kappa.serving.query.sandbox.processes import ForkServer, QueryWorker
from kappa.serving.query.sandbox.question import MOST_FILES, Allowance
from kappa.state.store import Store
from kappa.tables.views.served_rows_sql import read_sql

# A child that dies before reading its request did nothing: the next child gets the request.
_ATTEMPTS = 3
_SPARES = 2
# The longest wait for a busy worker, before another worker is opened.
_MOST_WAIT = 1.0
# The most queries of a worker.
_MOST_QUERIES = 500
# The most snapshots that are kept open: the present one, boards, and snapshots pinned by name.
_MOST_SNAPSHOTS = 16

# The root, the reader, and the identity of the snapshot.
_Key = tuple[str, Identity, object]


@dataclass(slots=True)
class OpenedSnapshot:
    """A snapshot for the queries of one reader: its tables and views, and its idle workers.

    `told` is the part of the snapshot that answers describe. `opening` is the request that opens
    the snapshot in a worker.
    """

    key: _Key
    snapshot: Snapshot
    told: Snapshot
    relations: Sequence[Relations]
    opening: bytes
    waiting: deque[QueryWorker] = field(default_factory=deque)
    # How many workers answer a query now, and how many queries wait for one of these.
    busy: int = 0
    wanted: int = 0
    # All files were compared with their sums.
    is_checked: bool = False

    def waits_for_files(self, store: Store) -> bool:
        """Returns True if files of the snapshot must be checked before they are read."""
        if not self.is_checked:
            self.is_checked = are_all_files_checked(store, self.relations)
        return not self.is_checked


class WorkerPool:
    """The worker processes of a sandbox. Any thread may use the pool."""

    def __init__(self, allowance: Allowance, program: Sequence[str]) -> None:
        """Sets the limits of queries, and starts no process yet.

        `program` contains the arguments with which Python runs the fork server.
        """
        self._allowance = allowance
        self._program = program
        self._most_queries = _MOST_QUERIES
        self._lock = threading.Condition()
        # How long the last new worker took until it could answer.
        self._opening_seconds = 0.0
        # One thread at a time opens a snapshot, and one makes processes.
        self._opening = threading.Lock()
        self._forking = threading.Lock()
        self._fork_server: ForkServer | None = None
        self._spares: deque[QueryWorker] = deque()
        # The snapshot that was asked last is the last.
        self._opened: OrderedDict[_Key, OpenedSnapshot] = OrderedDict()

    def start_processes(self) -> None:
        """Starts processes in advance, so that the first query need not wait for their start."""
        with self._forking:
            self._fill_spares()

    def open_snapshot(
        self, store: Store, snapshot: Snapshot, reader: Identity, files: FilesInPlace
    ) -> OpenedSnapshot:
        """Returns the shared data for a reader's queries over a snapshot.

        If the root is in a bucket, the result is for one query only, and `files` are the files of
        that query. Raises TooMuch if the snapshot has too many files.
        """
        key = (store.url, reader, _identity(snapshot))
        if files.folder is not None:
            return self._make_opened(store, snapshot, key, files)
        with self._opening:
            with self._lock:
                opened = self._opened.get(key)
                if opened is not None:
                    self._opened.move_to_end(key)
                    return opened
            opened = self._make_opened(store, snapshot, key, files)
            with self._lock:
                self._opened[key] = opened
                while len(self._opened) > _MOST_SNAPSHOTS:
                    _, oldest = self._opened.popitem(last=False)
                    _end_workers(oldest)
        return opened

    def take_worker(self, opened: OpenedSnapshot, *, is_new: bool = False) -> QueryWorker:
        """Returns a worker process for one query over an opened snapshot.

        If `is_new` is True, the worker is a new process. Otherwise, an idle worker is returned. If
        no worker is idle, this method waits for a busy worker, for up to twice the time that the
        last new worker needed to start, but at most a second. Without this wait, every query would
        start its own worker whenever the frontier has moved. Raises KappaError if no process could
        be started.
        """
        with self._lock:
            if not is_new:
                opened.wanted += 1
                try:
                    self._lock.wait_for(
                        lambda: opened.waiting or not opened.busy,
                        min(2 * self._opening_seconds, _MOST_WAIT),
                    )
                finally:
                    opened.wanted -= 1
            opened.busy += 1
            if opened.waiting and not is_new:
                return opened.waiting.pop()
        begun = time.monotonic()
        try:
            for _ in range(_ATTEMPTS):
                worker = self._spare_process()
                if worker.accepts_snapshot(opened.opening):
                    worker.taken_at = begun
                    return worker
                worker.end_process()
        except BaseException:
            self._note_idle(opened)
            raise
        self._note_idle(opened)
        raise KappaError(
            "no process for the query could be started",
            hint="see whether the machine has memory left; "
            "kappa logs supervisor shows what was said",
        )

    def leave_worker(self, opened: OpenedSnapshot, worker: QueryWorker) -> None:
        """Keeps a worker that has answered a query for the next query, or ends the worker.

        The worker is ended if it must not be used again.
        """
        with self._lock:
            opened.busy -= 1
            if worker.answered == 1:
                self._opening_seconds = worker.opening_seconds
            stays = (
                worker.is_fit
                and worker.answered < self._most_queries
                # A query that waits may be of an older snapshot, pinned before the frontier moved.
                and (self._opened.get(opened.key) is opened or opened.wanted > len(opened.waiting))
            )
            if stays:
                opened.waiting.append(worker)
                self._end_surplus()
            self._lock.notify_all()
        if not stays:
            worker.end_process()

    def forget_older(self, before: Snapshot, now: Snapshot) -> None:
        """Ends the workers of the snapshot `before`, unless `now` has the same rows."""
        identity = _identity(before)
        if identity == _identity(now):
            return
        with self._lock:
            for key in [key for key in self._opened if key[2] == identity]:
                _end_workers(self._opened.pop(key))

    def close(self) -> None:
        """Ends the fork server and its children."""
        with self._lock:
            while self._opened:
                _end_workers(self._opened.popitem()[1])
        with self._forking:
            while self._spares:
                self._spares.popleft().end_process()
            if self._fork_server is not None:
                self._fork_server.end_server()
                self._fork_server = None

    def _note_idle(self, opened: OpenedSnapshot) -> None:
        with self._lock:
            opened.busy -= 1
            self._lock.notify_all()

    def _end_surplus(self) -> None:
        """Ends some idle workers if there are too many of them.

        Workers of the least recently used snapshots are ended first.
        """
        surplus = sum(len(each.waiting) for each in self._opened.values()) - self._allowance.at_once
        for each in self._opened.values():
            while surplus > 0 and each.waiting:
                each.waiting.popleft().end_process()
                surplus -= 1

    def _spare_process(self) -> QueryWorker:
        with self._forking:
            self._fill_spares()
            child = self._spares.popleft()
            # A child for the next query starts now.
            self._fill_spares()
        return child

    def _fill_spares(self) -> None:
        if self._fork_server is None or not self._fork_server.is_alive():
            while self._spares:
                self._spares.popleft().end_process()
            if self._fork_server is not None:
                self._fork_server.end_server()
            self._fork_server = ForkServer(self._program)
        while len(self._spares) < min(_SPARES, self._allowance.at_once):
            self._spares.append(self._fork_server.make_child())

    def _make_opened(
        self, store: Store, snapshot: Snapshot, key: _Key, files: FilesInPlace
    ) -> OpenedSnapshot:
        reader = key[1]
        relations = readable_relations(relations_of(snapshot, store), reader.tables, tables_named)
        _ensure_few_files(relations)
        here = (
            relations
            if files.folder is None
            else readable_relations(
                relations_of(snapshot, store, listed=partial(_placed_files, files)),
                reader.tables,
                tables_named,
            )
        )
        told = readable_snapshot(snapshot, reader.tables)
        opening = {
            # The name of a reader who may not read all tables, for the sentence that refuses one.
            "reader": "" if reader.tables.is_all else reader.name,
            "head": json_value(head_of(told)),
            "relations": [_document(each) for each in here],
            "left": [
                asdict(each)
                for each in retired_relations(relations, store)
                if reader.tables.allows(each.pipeline, each.name)
            ],
            "memory": self._allowance.memory,
            "cpu_seconds": max(1, round(self._allowance.seconds)),
            "folder": None if files.folder is None else str(files.folder),
            "empty": {} if files.folder is None else _empty_tables(snapshot),
        }
        return OpenedSnapshot(key, snapshot, told, relations, json.dumps(opening).encode())


def _identity(snapshot: Snapshot) -> object:
    """Returns a value that two snapshots have in common only if they have the same rows."""
    return (
        snapshot.generation,
        tuple(
            (each.build, each.number, each.epoch, each.published_at)
            for _, each in sorted(snapshot.frontiers.items())
        ),
    )


def _document(relations: Relations) -> Mapping[str, Any]:
    return {
        "pipeline": relations.pipeline,
        "tables": {
            name: {"sql": table.sql, "paths": list(table.paths)}
            for name, table in relations.tables.items()
        },
        "views": dict(relations.views),
        "hidden": sorted(relations.hidden),
    }


def _empty_tables(snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    """Returns, for each pipeline and table, a query that has the table's columns but no rows."""
    return {
        pipeline: {
            each.name: read_sql(each, (), clock=None) for each in snapshot.births[build].tables
        }
        for pipeline, build in snapshot.serving.items()
    }


def _end_workers(opened: OpenedSnapshot) -> None:
    while opened.waiting:
        opened.waiting.popleft().end_process()


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
