"""The supervisor: the process that `kappa up` runs.

The supervisor owns the broker, the child processes and the loop. All its state is in the journal
and the folders of the builds. So if the supervisor is killed, the next `kappa up` continues.
However the supervisor ends, its children end too; only the HTTP supervisor survives a kill of the
supervisor. A lock ensures that a root has only one supervisor. Run as a program, this module is the
supervisor in the background.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kappa.base.clock import now
from kappa.base.errors import Conflict, ExitCode, KappaError, TimedOut
from kappa.base.failpoint import failpoint
from kappa.base.process import mark_children, process_id, send_signal
from kappa.base.program import run_program
from kappa.base.settings import Settings, file_settings, load_settings
from kappa.base.temporary_folders import delete_left_behind
from kappa.replay.platform.child import open_log
from kappa.replay.platform.controller import Controller
from kappa.replay.platform.copy import ensure_whole_root
from kappa.replay.platform.http_port import PORT, read_kept_port
from kappa.replay.platform.idle_builds import Rests
from kappa.replay.platform.kafka import PlatformKafka
from kappa.replay.platform.messages import (
    ErrorReport,
    message_printer,
    named_errors,
    news_lines,
    warning,
)
from kappa.replay.platform.notifier import Notifier
from kappa.replay.platform.processes import Processes
from kappa.replay.platform.services import Services, ensure_no_http_supervisor
from kappa.replay.platform.start import SUPERVISOR_LOG
from kappa.replay.platform.stop_request import StopRequest, StopRequested
from kappa.replay.rollout.supervisor_report import ReportWriter, ensure_no_report
from kappa.replay.status.run_records import RUNNING, Running, put_running
from kappa.state.disk_space import DiskReserve
from kappa.state.lock import current_holder, holding_process
from kappa.state.root import LOCK, ensure_root, lock_of, why_silent
from kappa.state.store import Store, open_store

_TICK_SECONDS = 0.2
_NAP_SECONDS = 0.05
# So soon a supervisor whose root was taken over ends; its changes are refused meanwhile.
_CLAIM_SECONDS = 5.0
# Jobs have 30 s to end, then the broker has 20.
_DOWN_SECONDS = 90.0


def run_platform(settings: Settings, *, take_over: bool = False) -> None:
    """Runs the platform in this process until the process is asked to end.

    Raises Conflict if a supervisor is up, and Superseded if another host has claimed the root and
    `take_over` is False. Raises KappaError if the platform cannot start, for example because there
    is no Java, there is no broker, or the journal is damaged.
    """
    with named_errors():
        store = open_store(settings)
        with open_log(store.local.path(SUPERVISOR_LOG)).open("a", encoding="utf-8") as log:
            _run_supervisor(settings, message_printer(sys.stderr, log), take_over=take_over)


def end_platform(settings: Settings) -> bool:
    """Ends the supervisor of this root, and waits until its process has exited.

    Returns False if there was no supervisor, otherwise True. Raises TimedOut if the supervisor has
    not exited after a minute and a half.
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
                hint=f"wait, or end it with: kill -9 {process.pid}; kappa up continues from there",
            )
        time.sleep(_NAP_SECONDS)
    return True


def end_left_server(settings: Settings) -> bool:
    """Ends the HTTP server that a killed supervisor has left, and returns True.

    Returns False if there is no such server, or if another supervisor is up, because the server
    then belongs to that supervisor.
    """
    store = open_store(settings)
    # If another `kappa up` has started meanwhile, the server is the server of that supervisor.
    return current_holder(store.local.path(LOCK)) is None and ensure_no_http_supervisor(store)


def _run_supervisor(settings: Settings, say: Callable[[str], None], *, take_over: bool) -> None:
    """Runs the platform until this process is asked to end, and then ends all children."""
    store, started_with = open_store(settings), file_settings(settings.project)
    notifier = Notifier(store, settings, say=say)
    lock = lock_of(store, LOCK, what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        other = current_holder(store.local.path(LOCK))
        raise Conflict(
            f"kappa is up already (process {other.pid if other else '?'})",
            hint="kappa status shows it; kappa down ends it",
        ) from error
    ensure_whole_root(store)
    store.control.take(over=take_over)
    root = ensure_root(store)
    mark_children(root.id)
    if why := why_silent(store):
        say(warning(why))
    store.local.delete(RUNNING)
    delete_left_behind(Path(tempfile.gettempdir()))
    ensure_no_report(store)
    stop = StopRequest()
    kafka = PlatformKafka(settings, store, say, stop)
    processes = Processes(store, settings, say=say)
    rests = Rests(
        store,
        rest_after=settings.engine.rest_after,
        many=settings.engine.tail_records,
        say=say,
    )
    services = Services(store, settings, say=say)
    reporter = ReportWriter(store, processes.deaths_of_job, clock=time.monotonic)
    reserve = DiskReserve(store, settings.reserve_bytes, say=say)
    try:
        with stop:
            services.http.ensure_running()
            notifier.start()
            kafka.ensure_running()
            _run_loop(
                store,
                kafka,
                Controller(
                    store, log=kafka, processes=processes, rules=settings.rollout, clock=time.time
                ),
                processes,
                rests,
                services,
                reserve,
                reporter,
                say,
                stop,
                started_with,
            )
    except StopRequested:
        # The request came while the platform waited for the broker. All children end below.
        pass
    finally:
        failpoint("supervisor.before_down")
        # The record names this process; no command may take a dead process for the platform.
        with contextlib.suppress(KappaError):
            store.local.delete(RUNNING)
        failpoint("supervisor.after_down")
        services.end_all()
        processes.end_all()
        notifier.end()
        kafka.stop_broker()
        # All that could change something has ended.
        with contextlib.suppress(KappaError):
            store.control.release()
        say("down")
        lock.release()


def _run_loop(
    store: Store,
    kafka: PlatformKafka,
    controller: Controller,
    processes: Processes,
    rests: Rests,
    services: Services,
    reserve: DiskReserve,
    reporter: ReportWriter,
    say: Callable[[str], None],
    stop: StopRequest,
    started_with: Mapping[str, str],
) -> None:
    claiming, ticking, announcing = ErrorReport(say), ErrorReport(say), ErrorReport(say)
    ready_at, resting, looked_at = "", frozenset[str](), time.monotonic()
    while not stop.requested:
        if time.monotonic() - looked_at >= _CLAIM_SECONDS:
            looked_at = time.monotonic()
            with claiming.reported_once():
                store.control.ensure_mine()
        with ticking.reported_once():
            has_space = reserve.ensure_space()
            services.http.ensure_running()
            kafka.ensure_running(has_space=has_space)
            wanted = controller.state.wanted_jobs()
            resting = rests.update_resting(
                wanted - processes.aligning,
                controller.state.kept_jobs(),
                processes.jobs,
                kafka,
            )
            processes.reconcile_jobs(
                wanted - resting if has_space else frozenset(),
                kafka.bootstrap_servers,
                serves=bool(controller.state.serving),
            )
            services.ensure_running(
                kafka.bootstrap_servers,
                controller.state.serving.values(),
                has_space=has_space,
                is_calm=processes.is_calm,
            )
            before = controller.state
            for line in news_lines(before, controller.tick()):
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
                put_running(
                    store,
                    Running(me.pid, me.born, kafka.bootstrap_servers, now(), settings=started_with),
                )
                failpoint("supervisor.after_ready")
                ready_at = kafka.bootstrap_servers
                say(f"up: Kafka at {ready_at}, everything below {store.address('')}")
                kept = read_kept_port(store.local.path(PORT))
                if kept is not None and kept.text:
                    say(kept.text)
        time.sleep(_TICK_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """Runs the supervisor in the background, as a program that prints log lines.

    Returns the exit code.
    """

    def work(given: argparse.Namespace) -> ExitCode:
        with named_errors():
            settings = load_settings(given.project, root=given.root)
            _run_supervisor(settings, message_printer(sys.stdout), take_over=bool(given.take_over))
        return ExitCode.OK

    return run_program(
        "kappa.replay.platform.supervisor", work, arguments, has_log=False, take_over=int
    )


if __name__ == "__main__":
    sys.exit(main())
