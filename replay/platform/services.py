"""The services of `kappa up`: the child processes other than the jobs of builds.

The archiver, the courier and the collector are programs that receive the broker's address. If the
address changes, these programs are ended and started again. The HTTP supervisor needs no broker.
The check of maintained views runs once for each build that serves. Missing class archives are
created once.

If the supervisor of the platform is killed, the HTTP supervisor survives. The lock file of the HTTP
supervisor names its process, so that the next `kappa up`, or `kappa down`, can find and end this
process. A server that `kappa serve` runs holds no lock.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from kappa.base.errors import KappaError
from kappa.base.process import LOW_PRIORITY, kill_and_see_gone, send_signal
from kappa.base.program import error_text, project_options
from kappa.base.settings import Settings
from kappa.code.sources import Sources
from kappa.engine.spark.cds import archives_to_make
from kappa.replay.platform.child import ChildProcess, ended_message
from kappa.replay.platform.http_port import PORT
from kappa.replay.platform.http_supervisor import socket_handed_over
from kappa.replay.platform.messages import failure
from kappa.replay.platform.start import fetch_jars
from kappa.replay.status.run_records import DOOR, HTTP_LOCK
from kappa.serving.access.accounts import Accounts
from kappa.serving.http.address import HttpAddress, guarded_address
from kappa.serving.outlets.outlet import served_outlets
from kappa.state.build import read_birth
from kappa.state.build_status import read_view_check
from kappa.state.frontier import Frontiers
from kappa.state.lock import holding_process
from kappa.state.root import own_root
from kappa.state.store import Store

# The server of the HTTP supervisor has 10 s to end.
_HTTP_PATIENCE_SECONDS = 15.0
_NAP_SECONDS = 0.02
# A check begins once slices have kept the views of a build over so many frontiers.
AFTER_FRONTIERS = 20
_VIEWS_LOOK_SECONDS = 5.0
# Class archives take what no other process wants of the processors.
_LOWEST_PRIORITY = 19
ARCHIVES_LOG = "archives"


class Service:
    """A child program other than the job of a build.

    A subclass decides when the program is wanted. If the program must end, the supervisor waits for
    at most `patience_seconds`, and does nothing else during the wait.
    """

    what: ClassVar[str]
    log: ClassVar[str]
    patience_seconds: ClassVar[float]
    nice: ClassVar[int] = 0
    outlives: ClassVar[bool] = False

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a service that does not run yet.

        `say` prints a message for the operator. `clock` returns seconds that never move back.
        """
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._child = ChildProcess(
            self.what,
            store.local.path(self.log),
            say=say,
            clock=clock,
            patience_seconds=self.patience_seconds,
            nice=self.nice,
            outlives=self.outlives,
        )

    def end(self) -> None:
        """Ends the program. If the program is started again, the program continues its work."""
        self._child.end()


class BrokerService(Service):
    """A program that receives the project, the root and the broker's address.

    If `needs_space` is True, the program does not run while the disk is full.
    """

    module: ClassVar[str]
    look_seconds: ClassVar[float] = 0.5
    needs_space: ClassVar[bool] = True

    _is_wanted = False
    _look_at = 0.0
    _bootstrap_servers = ""

    def ensure_running(self, bootstrap_servers: str, *, has_space: bool = True) -> None:
        """Starts the program, unless it runs, is not wanted, or must still wait after a death.

        If the program runs with the address of another broker, the program is ended first.
        """
        if self.needs_space and not has_space:
            self.end()
            return
        if (code := self._child.reap_exit_code()) is not None:
            self._take_end(code)
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + self.look_seconds
            self._update_wanted()
        if bootstrap_servers != self._bootstrap_servers:
            self.end()
            self._bootstrap_servers = bootstrap_servers
        if self._is_wanted:
            self._child.ensure_started(
                self.module, *project_options(self._settings), "--bootstrap", bootstrap_servers
            )

    def _take_end(self, code: int) -> None:
        """Handles the exit of the program: it counts as a death, whatever the exit code is."""
        self._child.has_died(code)

    def _update_wanted(self) -> None:
        """Determines whether the program is wanted, and sets `_is_wanted`."""


class ArchiverService(BrokerService):
    """The program that archives topics, if the project's files may declare an archived topic.

    The supervisor never runs the project's files, so it cannot know what these files declare. If a
    file contains the word `archive`, the archiver is started. If the archiver finds no archived
    topic, the archiver exits. When the project's files change, the archiver is started again.
    """

    what = "the archiver"
    module = "kappa.engine.archive.archiver"
    log = "logs/archiver.log"
    # An archiver may be killed at any time: the next archiver continues after the last commit.
    patience_seconds = 1.0
    look_seconds = 5.0
    # The job that keeps tables fresh goes before the archiver.
    nice = LOW_PRIORITY

    # The project's files that may declare topics, and when each file was changed.
    _files: Mapping[Path, int] = {}

    def _take_end(self, code: int) -> None:
        """Handles an exit. Code 0 means that no topic is archived. Any other code is a death.

        After exit code 0, the archiver is not started until the project's files change.
        """
        if code == 0:
            self._is_wanted = False
        else:
            self._child.has_died(code)

    def _update_wanted(self) -> None:
        try:
            found = Sources(self._settings.project).changed_at()
        except OSError:
            # A folder was deleted while it was listed: the next look lists the folders anew.
            return
        if found == self._files:
            return
        self._files = found
        self.end()
        self._is_wanted = any(_mentions_archive(path) for path in found)
        self._child.forget_deaths()


class CourierService(BrokerService):
    """The program that runs sinks and alerts, if a build that serves declares any.

    If the root may not send, the courier never runs. Once started, the courier runs until the
    platform ends, because the courier itself ends each sink and each alert that is no longer
    needed.
    """

    what = "the courier"
    module = "kappa.serving.outlets.courier"
    log = "logs/courier.log"
    # A courier may be killed at any time: the next courier continues after the records sent.
    patience_seconds = 2.0

    @cached_property
    def _may_send(self) -> bool:
        root = own_root(self._store)
        return root is None or root.sends

    def _update_wanted(self) -> None:
        if not self._is_wanted:
            self._is_wanted = self._may_send and bool(served_outlets(self._store))


class CollectorService(BrokerService):
    """The program that accepts events over the network, if `[collect]` names topics.

    The collector also runs while the disk is full, because it stores events in the broker. It
    refuses events that the broker cannot store.
    """

    what = "the collector"
    module = "kappa.serving.collect.collector"
    log = "logs/collector.log"
    # Events that are on their way are acknowledged first.
    patience_seconds = 15.0
    needs_space = False

    def _update_wanted(self) -> None:
        self._is_wanted = bool(self._settings.collect.topics)


class HttpService(Service):
    """The HTTP supervisor, a child that keeps the HTTP server running, if `serve.listen` is set."""

    what = "the HTTP supervisor"
    log = "logs/http.log"
    patience_seconds = _HTTP_PATIENCE_SECONDS
    outlives = True

    # The socket of an earlier HTTP supervisor, until the new HTTP supervisor has the socket.
    _handed: socket.socket | None = None

    @cached_property
    def _address(self) -> HttpAddress | None:
        return _listen_address(self._settings, self._store.local.folder, self._say)

    def ensure_running(self) -> None:
        """Starts the HTTP supervisor, unless it runs, is not wanted, or must wait after a death.

        An HTTP supervisor that an earlier `kappa up` has left is ended first, because its settings
        and code may be out of date. Before it is ended, its socket is taken over, so that
        connections wait instead of failing.
        """
        self._child.reap_death()
        if self._child.pid is not None:
            return
        local = self._store.local
        if self._address is not None and self._handed is None:
            self._handed = socket_handed_over(local.path(DOOR), self._address)
        if ensure_no_http_supervisor(self._store):
            self._say("the HTTP server that an earlier kappa has left is ended")
        if self._address is not None:
            handed = -1 if self._handed is None else self._handed.fileno()
            self._child.inherits = () if handed < 0 else (handed,)
            self._child.ensure_started(
                "kappa.replay.platform.http_supervisor",
                *project_options(self._settings),
                *("--host", self._address.host, "--port", str(self._address.port)),
                *("--lock", str(local.path(HTTP_LOCK)), "--log", str(local.path(self.log))),
                *("--door", str(local.path(DOOR)), "--socket", str(handed)),
                *("--kept", str(local.path(PORT))),
            )
        self._close_handed(is_over=False)

    def end(self) -> None:
        """Ends the HTTP supervisor. The HTTP server exits with the HTTP supervisor."""
        self._close_handed(is_over=True)
        self._child.end()
        ensure_no_http_supervisor(self._store)

    def _close_handed(self, *, is_over: bool) -> None:
        """Closes this process's copy of the HTTP socket that was taken over.

        Does nothing if the new HTTP supervisor has not received the socket yet, unless `is_over`.
        """
        if self._handed is not None and (is_over or self._child.pid is not None):
            self._handed.close()
            self._handed = None


class ViewCheckService(Service):
    """A child process of the supervisor that checks the maintained views of serving builds.

    The process checks one build at a time. It does not check a build directly after a replay,
    because the verification has just compared the replayed views with their queries. It checks a
    build only after slices have updated the build's views for some time. If the process ends before
    a check is complete, the next supervisor begins the check again.
    """

    what = "the check of maintained views"
    log = "logs/views.log"
    patience_seconds = 1.0
    nice = LOW_PRIORITY

    _look_at = 0.0

    @cached_property
    def _first(self) -> dict[str, int]:
        """Returns the builds that wait for their check, with the first observed frontier number."""
        return {}

    @cached_property
    def _done(self) -> set[str]:
        return set()

    def ensure_running(self, serving: Iterable[str]) -> None:
        """Starts the check of a serving build once slices have updated its views over 20 frontiers.

        Does nothing while a check runs. Each build is checked once.
        """
        if (code := self._child.reap_exit_code()) is not None:
            self._say(ended_message(self._child.what, code))
        if self._child.pid is not None or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _VIEWS_LOOK_SECONDS
        for build in sorted({*serving} - self._done):
            if not self._needs_check(build):
                self._done.add(build)
                continue
            newest = Frontiers(self._store, build).newest()
            number = 0 if newest is None else newest.number
            if number >= self._first.setdefault(build, number) + AFTER_FRONTIERS:
                self._done.add(build)
                self._child.start(
                    "kappa.replay.rollout.verify.view_check",
                    *project_options(self._settings),
                    *("--build", build),
                )
                self._say(f"{self._child.what} begins, of build {build}")
                return

    def _needs_check(self, build: str) -> bool:
        if build in self._first:
            return True
        born = read_birth(self._store, read_birth(self._store, build).folded_by)
        is_kept = any(table.view is not None for table in born.tables)
        return is_kept and read_view_check(self._store, build) is None


class ClassArchiveService(Service):
    """The child that creates the class archives that are missing in this installation.

    A class archive is a file from which a JVM loads classes quickly. After `pip install` there are
    no class archives, and without them JVMs take twice as long to start. The child begins once no
    process waits for the start of a JVM. Each supervisor tries once.
    """

    what = "the making of class archives"
    log = f"logs/{ARCHIVES_LOG}.log"
    patience_seconds = 1.0
    nice = _LOWEST_PRIORITY

    _was_looked_at = False

    def ensure_made(self, *, is_calm: bool) -> None:
        """Starts the child if a class archive is missing and `is_calm` is True.

        `is_calm` is True if no process waits for the start of a JVM.
        """
        if (code := self._child.reap_exit_code()) is not None:
            self._say(ended_message(self._child.what, code))
        if not is_calm or self._was_looked_at:
            return
        self._was_looked_at = True
        if archives_to_make(fetch_jars(self._settings)):
            self._child.start("kappa.engine.spark.cds", *project_options(self._settings))
            self._say(
                f"{self._child.what} begins, at the lowest priority: then JVMs start in half the "
                "time"
            )


class Services:
    """A supervisor's services: HTTP, archiver, courier, collector, view check, class archives."""

    def __init__(self, store: Store, settings: Settings, *, say: Callable[[str], None]) -> None:
        """Creates services that do not run yet. `say` prints a message for the operator."""
        self.http = HttpService(store, settings, say=say)
        self._at_broker = tuple(
            kind(store, settings, say=say)
            for kind in (ArchiverService, CourierService, CollectorService)
        )
        self._view_check = ViewCheckService(store, settings, say=say)
        self._class_archives = ClassArchiveService(store, settings, say=say)

    def ensure_running(
        self, bootstrap_servers: str, serving: Iterable[str], *, has_space: bool, is_calm: bool
    ) -> None:
        """Starts each service that is wanted and not running, except HTTP, which needs no broker.

        `serving` are the builds that serve. If `has_space` is False, services that write many bytes
        to the disk are ended. `is_calm` is True if no process waits for the start of a JVM.
        """
        for service in self._at_broker:
            service.ensure_running(bootstrap_servers, has_space=has_space)
        self._view_check.ensure_running(serving)
        self._class_archives.ensure_made(is_calm=is_calm and has_space)

    def end_all(self) -> None:
        """Ends all services, and waits until each has exited."""
        for service in (self.http, *self._at_broker, self._view_check, self._class_archives):
            service.end()


def ensure_no_http_supervisor(store: Store) -> bool:
    """Ends the HTTP supervisor of this root, and waits until its process has exited.

    Returns False if there is no HTTP supervisor, otherwise True.
    """
    found = holding_process(store.local.path(HTTP_LOCK))
    if found is None:
        return False
    send_signal(found, signal.SIGTERM)
    deadline = time.monotonic() + _HTTP_PATIENCE_SECONDS
    while found.alive() and time.monotonic() < deadline:
        time.sleep(_NAP_SECONDS)
    # The server dies with the HTTP supervisor.
    kill_and_see_gone(found)
    return True


def _listen_address(
    settings: Settings, local: Path, say: Callable[[str], None]
) -> HttpAddress | None:
    if not settings.serve.listen:
        return None
    try:
        accounts = Accounts.of(settings, local)
        return guarded_address(
            settings.serve.listen, settings.serve.token or None, named=accounts.is_guarded
        )
    except KappaError as error:
        say(failure(f"nothing serves HTTP: {error_text(error)}"))
        return None


def _mentions_archive(path: Path) -> bool:
    try:
        return b"archive" in path.read_bytes()
    except OSError:
        return False
