"""The sandbox: a stranger's SQL is answered by a process of its own, which has nothing but the snapshot's tables and ends with the query.

The server asks, reads pieces of the answer until it is whole, and kills what takes too long; it never looks into them. A process
is started before it is needed, used for one query, and never again. Read next: sandboxed.py for what keeps the query
in, nursery.py for where processes come from.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Self

from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.base.settings import ServeSettings
from kappa.state.store import Store
from serving.pin.catalog import PinnedSnapshot, Snapshot, pin
from serving.query.query import Relations, TooMuch, relations_of
from serving.query.render import plain
from serving.sandbox.frames import ACCEPTED, ASKED, ENDED, PIECE, REFUSED, put, take

_HOUSE = Path(__file__).resolve().parents[2]
# A child that dies before it has read what it is asked has had no part in it: the next one is asked.
_ATTEMPTS = 3
_FRAME_BYTES = 1 << 20
# What a child needs to say beside its answer.
_SLACK_BYTES = 1 << 20
# What an answer may take of the server's memory; beyond, it lies in a file.
_IN_MEMORY_BYTES = 1 << 20
# A nursery imports DuckDB and Arrow first.
_START_SECONDS = 60.0
_GRACE_SECONDS = 1.0
_SPARES = 2
_UNITS = {"m": 1 << 20, "g": 1 << 30}


class Busy(KappaError):
    """As many queries as may be are being answered, and none has ended in time."""

    status = 503


class Form(StrEnum):
    """What an answer is written as."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one query may have: bytes of memory, seconds of time and of each core, rows and bytes of its answer; and how many run at once."""

    memory: int = 512 << 20
    seconds: float = 30.0
    rows: int = 100_000
    bytes: int = 32 << 20
    at_once: int = 4

    @classmethod
    def of(cls, settings: ServeSettings) -> Self:
        """What the settings of a project allow."""
        return cls(
            _bytes(settings.query_memory),
            settings.query_seconds,
            settings.query_rows,
            _bytes(settings.query_bytes),
            settings.queries,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """One query, what its answer is written as, and where it stops though there were more rows."""

    sql: str
    form: Form = Form.JSON
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer's bytes, from their beginning, in a file that goes when it is closed, which is for who asked to do; `truncated`: there was more.

    `columns` have a name and DuckDB's type each. `snapshot` is what all of it is true of.
    """

    body: IO[bytes]
    size: int
    columns: tuple[Mapping[str, str], ...]
    rows: int
    truncated: bool
    snapshot: Snapshot


class Sandbox:
    """The processes that answer strangers; any thread may ask. It is to be closed."""

    def __init__(
        self, allowance: Allowance, *, program: Sequence[str] = ("-m", "serving.sandbox.nursery")
    ) -> None:
        """Nothing runs yet: the first query, or `start`, starts what is needed. `program` is what Python runs as the nursery."""
        self.allowance = allowance
        self._program = program
        self._slots = threading.BoundedSemaphore(allowance.at_once)
        self._lock = threading.Lock()
        self._nursery: _Nursery | None = None
        self._spares: deque[_Child] = deque()

    def start(self) -> None:
        """Has the first processes ready before they are asked for."""
        with self._lock:
            self._fill()

    def ask(self, store: Store, question: Question, *, lease_seconds: float = 60.0) -> Reply:
        """Answers a query from what is served now; as `serving.query.query.ask` does, on a newer snapshot where the first was not kept until the end.

        Raises UsageError where it cannot be meant or may not be asked, TooMuch where it takes more than it may, Busy where there is no place for it.
        """
        attempt = 0
        while True:
            attempt += 1
            with pin(store, lease_seconds=lease_seconds) as pinned:
                try:
                    return self.ask_pinned(store, pinned, question)
                except (TooMuch, Busy):
                    raise
                except KappaError:
                    # As in query.ask: a file that was collected under our hands looks like any error.
                    if pinned.holds() or attempt == _ATTEMPTS:
                        raise

    def ask_pinned(self, store: Store, pinned: PinnedSnapshot, question: Question) -> Reply:
        """Answers a query from a snapshot that is pinned meanwhile. Raises as `ask` does, and Conflict where it was not kept."""
        snapshot = pinned.snapshot
        reply = self._answered(question, relations_of(snapshot, store), snapshot)
        try:
            pinned.confirm()
        except Conflict:
            reply.body.close()
            raise
        return reply

    def close(self) -> None:
        """Ends all that runs for it."""
        with self._lock:
            while self._spares:
                self._spares.popleft().end()
            if self._nursery is not None:
                self._nursery.end()
                self._nursery = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    def _answered(
        self, question: Question, relations: Sequence[Relations], snapshot: Snapshot
    ) -> Reply:
        if not self._slots.acquire(timeout=self.allowance.seconds):
            raise Busy(
                f"{self.allowance.at_once} queries are being answered, and none has ended within {self.allowance.seconds:g} s",
                hint="ask again in a while; serve.queries in kappa.toml lets more run at once",
            )
        try:
            request = json.dumps(self._request(question, relations, snapshot)).encode()
            for _ in range(_ATTEMPTS):
                with self._taken() as child:
                    if child.accepts(request):
                        return child.reply(self.allowance, snapshot)
            raise KappaError(
                "no process for the query could be started",
                hint="see whether the machine has memory left; kappa logs supervisor shows what was said",
            )
        finally:
            self._slots.release()

    def _request(
        self, question: Question, relations: Sequence[Relations], snapshot: Snapshot
    ) -> Mapping[str, Any]:
        return {
            "sql": question.sql,
            "form": question.form,
            "head": plain(head_of(snapshot)),
            "relations": [
                {
                    "pipeline": each.pipeline,
                    "tables": {
                        name: {"sql": table.sql, "paths": list(table.paths)}
                        for name, table in each.tables.items()
                    },
                    "views": dict(each.views),
                }
                for each in relations
            ],
            "memory": self.allowance.memory,
            "cpu_seconds": max(1, round(self.allowance.seconds)),
            "rows": self.allowance.rows
            if question.rows is None
            else min(question.rows, self.allowance.rows),
            "bytes": self.allowance.bytes,
        }

    @contextlib.contextmanager
    def _taken(self) -> Iterator[_Child]:
        with self._lock:
            self._fill()
            child = self._spares.popleft()
            # The next query finds one that has begun already.
            self._fill()
        try:
            yield child
        finally:
            child.end()

    def _fill(self) -> None:
        if self._nursery is None or not self._nursery.alive():
            while self._spares:
                self._spares.popleft().end()
            if self._nursery is not None:
                self._nursery.end()
            self._nursery = _Nursery(self._program)
        while len(self._spares) < min(_SPARES, self.allowance.at_once):
            self._spares.append(self._nursery.child())


def head_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """What an answer says of the snapshot that it is true of: the generation, and of each pipeline its build, offsets and versions."""
    frontiers = snapshot.frontiers
    builds = {
        pipeline: {
            "build": build,
            "shown_at": frontiers[build].published_at,
            "offsets": frontiers[build].offsets.plain(),
            "versions": frontiers[build].versions,
        }
        for pipeline, build in snapshot.serving.items()
    }
    return {"generation": snapshot.generation, "builds": builds}


@dataclass(slots=True)
class _Child:
    """The process of one query, seen from the server: its pid for people, a handle for the kernel, the way to it, and what it dies of."""

    pid: int
    handle: int
    way: socket.socket
    death: int
    _ended: bool = field(default=False)

    def accepts(self, request: bytes) -> bool:
        """Asks it; False where it has died before."""
        self.way.settimeout(_START_SECONDS)
        try:
            put(self.way.fileno(), ASKED, request)
            return take(self.way.recv, most=0) == (ACCEPTED, b"")
        except (OSError, ValueError):
            return False

    def reply(self, allowance: Allowance, snapshot: Snapshot) -> Reply:
        """Its answer, whole. Raises what it says, and TooMuch where it takes too long, or dies."""
        body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # who asked closes it
        try:
            ended = self._ended_with(body, allowance)
        except BaseException:
            body.close()
            raise
        size = body.tell()
        body.seek(0)
        return Reply(
            body,
            size,
            tuple(ended["columns"]),
            int(ended["rows"]),
            bool(ended["truncated"]),
            snapshot,
        )

    def _ended_with(self, body: IO[bytes], allowance: Allowance) -> Any:
        deadline = time.monotonic() + allowance.seconds
        while (left := deadline - time.monotonic()) > 0:
            self.way.settimeout(left)
            try:
                frame = take(self.way.recv, most=_FRAME_BYTES)
            except TimeoutError:
                break
            except (OSError, ValueError) as error:
                raise KappaError(
                    f"the query's process said what could not be understood: {error}",
                    hint="ask again; if it stays so, the query is to blame",
                ) from error
            match frame:
                case (kind, content) if (
                    kind == PIECE and body.tell() + len(content) <= allowance.bytes + _SLACK_BYTES
                ):
                    body.write(content)
                case (kind, content) if kind == ENDED:
                    return json.loads(content)
                case (kind, content) if kind == REFUSED:
                    raise _refused(json.loads(content), allowance)
                case None:
                    raise self._died(allowance)
                case _:
                    raise KappaError(
                        "the query's process gave more than it was to give",
                        hint="ask again; if it stays so, the query is to blame",
                    )
        raise _too_long(allowance)

    def _died(self, allowance: Allowance) -> KappaError:
        """Why a process is gone that has not answered."""
        said = os.read(self.death, 16)
        code = int(said or b"1")
        if code == -signal.SIGXCPU:
            return _too_long(allowance)
        # Memory that is asked for in a place where nobody can say no ends the process, in one of several ways.
        return TooMuch(
            f"the query's process has ended ({signal.Signals(-code).name if code < 0 else f'code {code}'}) before it gave an answer: most likely it took more than {_told(allowance.memory)} of memory",
            hint=_LESS.format("serve.query_memory"),
        )

    def end(self) -> None:
        """Kills it, if it is there, and lets go of it; doing so again changes nothing."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        for each in (self.handle, self.death):
            os.close(each)
        self.way.close()


class _Nursery:
    """The process that children come from; it ends when this one does, since its socket is closed then."""

    def __init__(self, program: Sequence[str]) -> None:
        # Nobody writes into it; a query that could, would find nothing else there.
        self._folder = tempfile.TemporaryDirectory(prefix="kappa-sandbox-")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `end`
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # No environment but what Python itself needs, and no open file but the socket.
        environment = {
            "PYTHONPATH": str(_HOUSE),
            "PYTHONSAFEPATH": "1",
            "LC_ALL": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                cwd=self._folder.name,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control.settimeout(_START_SECONDS)

    def alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def child(self) -> _Child:
        """A new child, which makes itself ready meanwhile. Raises KappaError where the nursery cannot make one."""
        way, theirs = socket.socketpair()
        death, deaths = os.pipe()
        try:
            with theirs:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), deaths])
                said, handles, _, _ = socket.recv_fds(self._control, 16, 1)
            if not said:
                raise ConnectionResetError("it has ended")
        except OSError as error:
            way.close()
            os.close(death)
            raise KappaError(
                f"no process for a query could be started: {self._last_words() or error}",
                hint="see whether the machine has memory left, then ask again",
            ) from error
        finally:
            os.close(deaths)
        return _Child(int(said), handles[0], way, death)

    def _last_words(self) -> str:
        self._said.seek(0)
        return (self._said.read().decode(errors="replace").strip().splitlines() or [""])[-1]

    def end(self) -> None:
        """Ends it, and its children with it."""
        self._control.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
        self._folder.cleanup()


_LESS = "select fewer rows or columns, or aggregate in steps; {} in kappa.toml allows more"


def _too_long(allowance: Allowance) -> TooMuch:
    return TooMuch(
        f"the query took longer than {allowance.seconds:g} s, and was ended",
        hint=_LESS.format("serve.query_seconds"),
    )


def _refused(said: Mapping[str, str], allowance: Allowance) -> KappaError:
    match said["kind"]:
        case "usage":
            return UsageError(said["message"], hint=said["hint"])
        case "too_much":
            return TooMuch(
                f"the query needs more than {_told(allowance.memory)} of memory",
                hint=_LESS.format("serve.query_memory"),
            )
        case _:
            return KappaError(said["message"], hint=said["hint"])


def _told(count: int) -> str:
    return f"{count >> 20}m"


def _bytes(setting: str) -> int:
    return int(setting[:-1]) * _UNITS[setting[-1]]
