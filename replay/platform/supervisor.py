"""The supervisor: what `kappa up` runs. It owns the broker, the children and the loop.

All that it knows is in the journal and the builds' folders, so the next `kappa up` continues after
one that was killed. Its children end with it, however it ends; only the keeper of HTTP goes on
serving after one that was killed. A lock admits one per root. As a program it is the detached
supervisor.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kappa.base.clock import now
from kappa.base.errors import Conflict, ExitCode, KappaError, TimedOut
from kappa.base.failpoint import failpoint
from kappa.base.process import mark_children, process_id, send_signal
from kappa.base.program import run_program
from kappa.base.scratch import delete_left_behind
from kappa.base.settings import Settings, load_settings
from kappa.replay.platform.archiver_process import ArchiverProcess
from kappa.replay.platform.at_broker import CollectorProcess, CourierProcess
from kappa.replay.platform.child import open_log
from kappa.replay.platform.controller import Controller
from kappa.replay.platform.copy import ensure_whole_root
from kappa.replay.platform.detached import SUPERVISOR_LOG, ensure_detached
from kappa.replay.platform.http_process import HttpProcess, ensure_no_keeper
from kappa.replay.platform.kafka import Kafka
from kappa.replay.platform.messages import Reported, named_errors, news, saying
from kappa.replay.platform.processes import Processes
from kappa.replay.platform.reserve import Reserve
from kappa.replay.platform.rests import Rests
from kappa.replay.platform.stop_request import StopRequest, StopRequested
from kappa.replay.platform.view_checks import ViewChecks
from kappa.replay.rollout.supervisor_report import Reporter, ensure_no_report
from kappa.replay.status.running import RUNNING, Running, put_running
from kappa.state.lock import holder, holding_process
from kappa.state.root import LOCK, ensure_root, lock_of, why_silent
from kappa.state.store import Store, open_store

_TICK_SECONDS = 0.2
_NAP_SECONDS = 0.05
# So soon a supervisor whose root was taken over ends; what it does meanwhile is refused.
_CLAIM_SECONDS = 5.0
# Jobs have 30 s to end, then the broker has 20.
_DOWN_SECONDS = 90.0


def up(
    settings: Settings,
    *,
    detach: bool,
    take_over: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Running | None:
    """Runs the platform in this process until it is asked to end, or detached.

    While it waits for a detached one, `on_progress` gets the last line that it has written.
    Detached, it returns the supervisor once it is ready; one that is up already is as good. In this
    process it returns None, and raises Conflict if one is up, or if another host has claimed the
    root and it is not to `take_over`. Raises KappaError if it cannot start: no Java, no broker, a
    broken journal.
    """
    with named_errors():
        if detach:
            return ensure_detached(
                settings, on_progress or (lambda _line: None), take_over=take_over
            )
        store = open_store(settings)
        with open_log(store.local.path(SUPERVISOR_LOG)).open("a", encoding="utf-8") as log:
            _run(settings, saying(sys.stderr, log), take_over=take_over)
    return None


def down(settings: Settings) -> bool:
    """Ends the supervisor of this root and waits until it is gone. False if there was none.

    Raises TimedOut if it is still ending after a minute and a half.
    """
    process = holding_process(open_store(settings).local.path(LOCK))
    if process is None:
        return False
    send_signal(process, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while process.alive():
        if time.monotonic() > deadline:
            raise TimedOut(
                f"the supervisor (process {process.pid}) is still ending",
                hint=f"wait, or end it with: kill -9 {process.pid}; kappa up goes on from there",
            )
        time.sleep(_NAP_SECONDS)
    return True


def end_left_server(settings: Settings) -> bool:
    """Ends the HTTP server that a killed supervisor has left. Returns False if there was none."""
    store = open_store(settings)
    # Another `kappa up` has come meanwhile: the server is its own.
    return holder(store.local.path(LOCK)) is None and ensure_no_keeper(store)


def _run(settings: Settings, say: Callable[[str], None], *, take_over: bool) -> None:
    """Runs the platform until this process is asked to end."""
    store = open_store(settings)
    lock = lock_of(store, LOCK, what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        other = holder(store.local.path(LOCK))
        raise Conflict(
            f"kappa is up already (process {other.pid if other else '?'})",
            hint="kappa status shows it; kappa down ends it",
        ) from error
    ensure_whole_root(store)
    store.control.take(over=take_over)
    root = ensure_root(store)
    mark_children(root.id)
    if why := why_silent(store):
        say(why)
    store.local.delete(RUNNING)
    delete_left_behind(Path(tempfile.gettempdir()))
    ensure_no_report(store)
    stop = StopRequest()
    kafka = Kafka(settings, store, say, stop)
    processes = Processes(store, settings, say=say)
    rests = Rests(
        store,
        rest_after=settings.engine.rest_after,
        many=settings.engine.tail_records,
        say=say,
    )
    http = HttpProcess(store, settings, say=say)
    beside = (
        http,
        ArchiverProcess(store, settings, say=say),
        CourierProcess(store, settings, say=say),
        CollectorProcess(store, settings, say=say),
        ViewChecks(store, settings, say=say),
    )
    reporter = Reporter(store, processes.deaths, clock=time.monotonic)
    reserve = Reserve(store, settings.reserve_bytes, say=say)
    try:
        with stop:
            http.ensure_running()
            kafka.ensure_running()
            _loop(
                store,
                kafka,
                Controller(
                    store, log=kafka, processes=processes, rules=settings.rollout, clock=time.time
                ),
                processes,
                rests,
                beside,
                reserve,
                reporter,
                say,
                stop,
            )
    except StopRequested:
        # While it waited for the broker; what it has started so far ends below, as ever.
        pass
    finally:
        failpoint("supervisor.before_down")
        # It names this process, and no command takes a dead one for the platform.
        with contextlib.suppress(KappaError):
            store.local.delete(RUNNING)
        failpoint("supervisor.after_down")
        for process in beside:
            process.end()
        processes.end_all()
        kafka.stop()
        # All that could change something has ended.
        with contextlib.suppress(KappaError):
            store.control.release()
        say("down")
        lock.release()


def _loop(
    store: Store,
    kafka: Kafka,
    controller: Controller,
    processes: Processes,
    rests: Rests,
    beside: tuple[HttpProcess, ArchiverProcess, CourierProcess, CollectorProcess, ViewChecks],
    reserve: Reserve,
    reporter: Reporter,
    say: Callable[[str], None],
    stop: StopRequest,
) -> None:
    http, archiver, courier, collector, views = beside
    claiming, ticking, announcing = Reported(say), Reported(say), Reported(say)
    ready_at, resting, looked_at = "", frozenset[str](), time.monotonic()
    while not stop.requested:
        if time.monotonic() - looked_at >= _CLAIM_SECONDS:
            looked_at = time.monotonic()
            with claiming.reported_once():
                store.control.ensure_mine()
        with ticking.reported_once():
            has_space = reserve.ensure_space()
            http.ensure_running()
            kafka.ensure_running(has_space=has_space)
            wanted = controller.state.wanted_jobs()
            resting = rests.resting(
                wanted - processes.aligning,
                controller.state.kept_jobs(),
                processes.jobs,
                kafka,
            )
            processes.ensure_jobs(
                wanted - resting if has_space else frozenset(),
                kafka.bootstrap_servers,
                serves=bool(controller.state.serving),
            )
            if has_space:
                archiver.ensure_running(kafka.bootstrap_servers)
                courier.ensure_running(kafka.bootstrap_servers)
            else:
                archiver.end()
                courier.end()
            # Events go to the broker, and what it cannot take is refused.
            collector.ensure_running(kafka.bootstrap_servers)
            views.ensure_running(controller.state.serving.values())
            before = controller.state
            for line in news(before, controller.tick()):
                say(line)
        # For people to read, and nothing else: a full disk was reported above.
        with contextlib.suppress(KappaError, OSError):
            reporter.report(controller.state, controller.waits, resting, rests.woken)
        if kafka.bootstrap_servers != ready_at:
            # Where two have taken the root over at once, the loser ends instead.
            with claiming.reported_once():
                store.control.ensure_mine()
            with announcing.reported_once():
                me = process_id(os.getpid())
                assert me is not None, "this process is there"
                failpoint("supervisor.before_ready")
                put_running(store, Running(me.pid, me.born, kafka.bootstrap_servers, now()))
                failpoint("supervisor.after_ready")
                ready_at = kafka.bootstrap_servers
                say(f"up: Kafka at {ready_at}, everything below {store.address('')}")
        time.sleep(_TICK_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """Runs the detached supervisor, whose output is its log; returns its exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        with named_errors():
            settings = load_settings(given.project, root=given.root)
            _run(settings, saying(sys.stdout), take_over=bool(given.take_over))
        return ExitCode.OK

    return run_program("kappa.replay.platform.supervisor", work, arguments, take_over=int)


if __name__ == "__main__":
    sys.exit(main())
