"""The supervisor: what `kappa up` runs. It owns the embedded broker, the child processes and the controller's loop.

All that it knows is in the journal and the builds' folders, so one that is killed is answered by the next `kappa up`. What
it started ends with it, however it ends. One per root: a lock says who. As a program it is the detached supervisor.
Read next: processes.py (what runs), controller.py (what is decided).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from kappa.errors import Broken, Conflict, ExitCode, KappaError, TimedOut, Unreachable
from kappa.java import find_java
from kappa.journal import now
from kappa.lock import Lock, holder
from kappa.log.broker import Broker
from kappa.log.client import Log, TopicFacts
from kappa.log.jars import ensure_jars
from kappa.offsets import Offsets
from kappa.process import ProcessId, process_id
from kappa.settings import Settings, load_settings
from kappa.store import Store
from replay.controller import Controller
from replay.processes import Processes, open_log
from replay.rollout import State

_RUNNING = "run/supervisor.json"
_LOCK = "run/supervisor.lock"
_LOG = "logs/supervisor.log"
_TICK_SECONDS = 0.2
_NAP_SECONDS = 0.05
# Jobs have 30 s to end, then the broker has 20.
_DOWN_SECONDS = 90.0
# Jars may have to be fetched, and a broker that was killed reads its log back.
_UP_SECONDS = 600.0
_EXTERNAL_BROKER_SECONDS = 15.0
_LONGEST_BACK_OFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """The supervisor that runs now and is ready: who it is, and where its jobs find Kafka."""

    pid: int
    born: str
    bootstrap_servers: str
    started: str
    format: int = 1


def running(settings: Settings) -> Running | None:
    """The supervisor of this root, or None where none is up and ready."""
    return running_at(Store(settings.root_url))


def running_at(store: Store) -> Running | None:
    """The supervisor of a root, or None where none is up and ready."""
    document = store.get_json(_RUNNING)
    if document is None:
        return None
    found = Running(**document)
    # What is written outlives a supervisor that was killed.
    return found if ProcessId(found.pid, found.born).alive() else None


def up(settings: Settings, *, detach: bool) -> Running | None:
    """Runs the platform: in this process until it is told to end (None), or detached, and gives who runs it once it is ready.

    Detached, one that is up already is as good. In this process, Conflict says that there is one. Raises KappaError where
    it cannot start: no Java, no broker, a broken journal.
    """
    if detach:
        return _ensure_detached(settings)
    store = Store(settings.root_url)
    with open_log(store.path(_LOG)).open("a", encoding="utf-8") as log:

        def say(text: str) -> None:
            line = f"{now()} {text}"
            print(line, file=sys.stderr, flush=True)
            print(line, file=log, flush=True)

        _run(settings, say)
    return None


def down(settings: Settings) -> bool:
    """Ends the supervisor of this root and waits until it is gone; False where none was there.

    Raises TimedOut where it is still ending after a minute and a half.
    """
    holds = holder(Store(settings.root_url).path(_LOCK))
    process = None if holds is None else process_id(holds.pid)
    if process is None:
        return False
    os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while process.alive():
        if time.monotonic() > deadline:
            raise TimedOut(f"the supervisor (process {process.pid}) is still ending", hint=f"wait, or end it with: kill -9 {process.pid}; kappa up goes on from there")
        time.sleep(_NAP_SECONDS)
    return True


def _ensure_detached(settings: Settings) -> Running:
    store = Store(settings.root_url)
    found = running_at(store)
    if found is not None:
        return found
    path = open_log(store.path(_LOG))
    # -P: what lies in the user's folder must not be imported instead of a library of the same name.
    command = [sys.executable, "-P", "-m", "replay.supervisor", "--project", str(settings.project), "--root", settings.root_url]
    with path.open("ab") as log:
        begins_at = log.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=settings.project)
    deadline = time.monotonic() + _UP_SECONDS
    while (found := running_at(store)) is None:
        # Where two came at once, the other one may have the lock, and be the one to wait for.
        if process.poll() is not None and holder(store.path(_LOCK)) is None:
            with path.open("rb") as log:
                log.seek(begins_at)
                raise _why(log.read().decode(errors="replace"), path)
        if time.monotonic() > deadline:
            raise TimedOut("kappa is not up yet", hint=f"see what it does: {path}")
        time.sleep(_NAP_SECONDS)
    return found


def _why(said: str, path: Path) -> KappaError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    spoken = {kind: text for kind, _, text in (line.partition(": ") for line in lines)}
    return KappaError(f"kappa did not come up: {spoken.get('error') or (lines or ['it said nothing'])[-1]}", hint=spoken.get("hint") or f"see {path}")


def _run(settings: Settings, say: Callable[[str], None]) -> None:
    """Runs the platform until this process is told to end."""
    store = Store(settings.root_url)
    lock = Lock(store.path(_LOCK), what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        other = holder(store.path(_LOCK))
        raise Conflict(f"kappa is up already (process {other.pid if other else '?'})", hint="kappa status shows it; kappa down ends it") from error
    store.delete(_RUNNING)
    told = _Told()
    kafka = _Kafka(settings, store, say, told)
    processes = Processes(store, settings, say=say)
    try:
        with told:
            kafka.ensure_running()
            _loop(store, kafka, Controller(store, log=kafka, processes=processes, rules=settings.rollout, clock=time.time), processes, say, told)
    except _ToldToEnd:
        # While it waited for the broker; what it has started so far ends below, as ever.
        pass
    finally:
        store.delete(_RUNNING)
        processes.end_all()
        kafka.stop()
        say("down")
        lock.release()


def _loop(store: Store, kafka: _Kafka, controller: Controller, processes: Processes, say: Callable[[str], None], told: _Told) -> None:
    said, ready_at = "", ""
    while not told.to_end:
        try:
            kafka.ensure_running()
            processes.ensure_jobs(controller.state.wanted_builds(), kafka.bootstrap_servers)
            before = controller.state
            for line in _news(before, controller.tick()):
                say(line)
            said = ""
        except Broken:
            raise
        except KappaError as error:
            # A full disk, a broker that is away: what runs goes on, and it is tried again. Said once, not at every tick.
            if str(error) != said:
                said = str(error)
                say(said)
        if kafka.bootstrap_servers != ready_at:
            ready_at = kafka.bootstrap_servers
            me = process_id(os.getpid())
            assert me is not None, "this process is there"
            store.put_json(_RUNNING, asdict(Running(me.pid, me.born, ready_at, now())))
            say(f"up: Kafka at {ready_at}, everything below {store.folder}")
        time.sleep(_TICK_SECONDS)


def _news(before: State, after: State) -> Iterator[str]:
    known = {rollout.number: rollout.phase for rollout in before.rollouts}
    for rollout in after.rollouts:
        if rollout.phase != known.get(rollout.number) and (before.last or rollout.active):
            yield f"rollout {rollout.number} of pipeline {rollout.pipeline}, build {rollout.build}: {rollout.phase}{f' ({rollout.reason})' if rollout.reason else ''}"


class _Kafka:
    """The broker that jobs use: our own, kept running, or one that is there. And what the controller wants to know of it."""

    def __init__(self, settings: Settings, store: Store, say: Callable[[str], None], told: _Told) -> None:
        self._settings = settings
        self._store = store
        self._say = say
        self._told = told
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._deaths = 0
        self._not_before = 0.0

    @property
    def bootstrap_servers(self) -> str:
        assert self._log is not None, "it was started"
        return self._log.bootstrap_servers

    def ensure_running(self) -> None:
        """Starts the broker where it is not running. Raises KappaError where it cannot be, and waits longer before each next try."""
        if self._settings.runs_broker:
            self._ensure_own()
        elif self._log is None:
            servers = self._settings.kafka.bootstrap_servers or ""
            log = Log(servers, self._settings.kafka.options)
            with self._told.interrupting():
                there = log.wait_until_ready(_EXTERNAL_BROKER_SECONDS)
            if not there:
                raise Unreachable(
                    f"no Kafka broker answers at {servers}", hint="start it, or see kafka.bootstrap_servers in kappa.toml: without it, kappa runs a broker of its own"
                )
            self._log = log

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def end(self, topics: Iterable[str]) -> Offsets:
        assert self._log is not None, "it was started"
        return self._log.end(topics)

    def facts(self, name: str) -> TopicFacts | None:
        assert self._log is not None, "it was started"
        return self._log.facts(name)

    def _ensure_own(self) -> None:
        if (self._broker is not None and self._broker.alive()) or time.monotonic() < self._not_before:
            return
        if self._broker is not None:
            self._say("the broker has died, and is started again")
        self._deaths += 1
        self._not_before = time.monotonic() + min(_LONGEST_BACK_OFF_SECONDS, 2.0**self._deaths)
        java = find_java()
        with self._told.interrupting():
            jars = ensure_jars(java, cache=self._settings.jars.cache, repository=self._settings.jars.repository)
            self._broker = Broker.start(self._store.folder, jars, java, heap=self._settings.kafka.heap)
        self._log = Log(self._broker.bootstrap_servers, self._settings.kafka.options)
        self._say(f"the broker runs, process {self._broker.pid}")


class _ToldToEnd(BaseException):
    """Raised by a signal where waiting would take long; not an error, so no `except Exception` may take it for one."""


class _Told:
    """Whether this process was told to end. A signal only says so, but for where it may interrupt."""

    def __init__(self) -> None:
        self.to_end = False
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within it, being told to end raises."""
        if self.to_end:
            raise _ToldToEnd
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def __enter__(self) -> Self:
        # SIGHUP: the terminal was closed.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Ignored from here on, while all is being ended: who cannot wait has SIGKILL.
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.to_end = True
        if self._interrupts:
            self._interrupts = False
            raise _ToldToEnd


def main(arguments: list[str] | None = None) -> int:
    """The detached supervisor's command; what it says goes to its log."""
    parser = argparse.ArgumentParser(prog="replay.supervisor", description="runs the platform; made by: kappa up -d")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--root", required=True)
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        print(f"{now()} {text}", flush=True)

    try:
        _run(load_settings(given.project, root=given.root), say)
    except KappaError as error:
        print(f"error: {error.message}\nhint: {error.hint}", flush=True)
        return int(error.exit_code)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
