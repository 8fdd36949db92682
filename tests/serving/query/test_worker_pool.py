"""Workers of queries as the pool manages them, without processes (sandbox/workers.py)."""

from __future__ import annotations

import json
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

from kappa.serving.query.sandbox.frames import ENDED, frame_bytes
from kappa.serving.query.sandbox.processes import QueryWorker
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.workers import OpenedSnapshot, WorkerPool


class AnsweringWorker:
    """A worker that has answered a given number of queries, without a process."""

    def __init__(self, answered: int = 1) -> None:
        self.answered, self.is_fit, self.is_ended = answered, True, False
        self.opening_seconds = 0.5

    def end_process(self) -> None:
        self.is_ended = True


def opened_snapshot() -> OpenedSnapshot:
    unused: Any = None
    return OpenedSnapshot(("root", unused, 1), unused, unused, (), b"", busy=2)


def test_workers_of_an_older_snapshot_stay_for_as_many_queries_as_wait() -> None:
    """An older snapshot keeps only as many workers as queries wait for it.

    Nobody would end an idle worker of a snapshot that was replaced.
    """
    pool, older = WorkerPool(Allowance(), ()), opened_snapshot()
    older.wanted = 1
    first, second = AnsweringWorker(), AnsweringWorker()
    for worker in (first, second):
        pool.leave_worker(older, cast("Any", worker))

    assert [*map(id, older.waiting)] == [id(first)]
    assert second.is_ended


def test_the_time_of_opening_is_of_the_first_query_alone() -> None:
    """The opening time comes from the first query only, and not from a failure hours later."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = QueryWorker(0, 0, ours, 0, taken_at=time.monotonic() - 2.0)
        for seconds in (1.0, 0.0):
            told = {"is_fit": True, "seconds": seconds}
            theirs.sendall(frame_bytes(ENDED, json.dumps(told).encode()))
            assert [*worker.stream_pieces(b"{}", Allowance(), lambda _: None)] == []

    assert worker.answered == 2
    assert 1.0 <= worker.opening_seconds < 2.0


def test_a_new_worker_counts_from_the_end_of_the_wait_for_a_busy_one() -> None:
    """If the wait counted as opening time, each wait would make the next wait longer."""
    pool, opened = WorkerPool(Allowance(), ()), opened_snapshot()
    pool._opening_seconds = 0.25
    fresh = SimpleNamespace(accepts_snapshot=lambda _: True, taken_at=0.0)
    pool._spare_process = lambda: cast("Any", fresh)  # type: ignore[method-assign]
    begun = time.monotonic()
    pool.take_worker(opened)

    assert fresh.taken_at >= begun + 0.5
