"""The objects through which the server uses the fork server and the worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import kappa
from kappa.base.errors import Damaged, KappaError, UsageError
from kappa.base.temporary_folders import SANDBOX, make_folder
from kappa.base.units import memory
from kappa.serving.access.roles import Forbidden
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.query_files import Named
from kappa.serving.query.sandbox.frames import (
    ACCEPTED,
    ASKED,
    ENDED,
    NAMED,
    OPENED,
    PIECE,
    REFUSED,
    frame_bytes,
    take_frame,
)
from kappa.serving.query.sandbox.question import Allowance, Reply

_PACKAGES = Path(kappa.__file__).parents[1]
_FRAME_BYTES = 1 << 20
# Room for the bytes that a child sends beside the rows of its answer.
_SLACK_BYTES = 1 << 20
# The most memory of the server that an answer takes; a longer answer is kept in a file.
_IN_MEMORY_BYTES = 1 << 20
# The fork server imports DuckDB and Arrow first.
_START_SECONDS = 60.0
_GRACE_SECONDS = 1.0
_LESS = "select fewer rows or columns, or aggregate in steps; {} in kappa.toml allows more"


@dataclass(slots=True)
class QueryWorker:
    """The object through which the server uses a worker process.

    `pid` is for display, and `handle` (pidfd_open(2)) is for system calls. `way` is the socket to
    the process, and `death` is the pipe that reports the exit code. `taken_at` is the time at which
    the first query got this worker, on the monotonic clock. `opening_seconds` is the time until the
    worker could answer that query. `answered` is the number of answered queries. `is_fit` is True
    if the worker may answer another query. `has_run_out` is True if the worker has exited or has no
    memory left.
    """

    pid: int
    handle: int
    way: socket.socket
    death: int
    answered: int = 0
    taken_at: float = 0.0
    opening_seconds: float = 0.0
    is_fit: bool = True
    has_run_out: bool = False
    _ended: bool = field(default=False)

    def accepts_snapshot(self, request: bytes) -> bool:
        """Sends the process a request to open the snapshot that all its queries read.

        Returns False if the process does not accept the request, for example because it has exited.
        """
        self.way.settimeout(_START_SECONDS)
        try:
            # A socket with a timeout does not block: os.write would write only a part.
            self.way.sendall(frame_bytes(OPENED, request))
            return take_frame(self.way.recv, most=0) == (ACCEPTED, b"")
        except (OSError, ValueError):
            return False

    def read_reply(
        self,
        request: bytes,
        allowance: Allowance,
        snapshot: Snapshot,
        check: Callable[[Iterable[Named]], None],
    ) -> Reply:
        """Sends a query to the process, and returns the complete answer.

        The function `check` is called with the tables that the query names. It ensures that the
        files of the tables can be read, and otherwise raises KappaError. The time that `check`
        takes does not count as the query's. Raises the error that the process reports. Raises
        TooMuch if the process takes too long or exits.
        """
        # The caller closes the file.
        body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        try:
            pieces = self.stream_pieces(request, allowance, check)
            while True:
                try:
                    body.write(next(pieces))
                except StopIteration as ended:
                    told = ended.value
                    break
        except BaseException:
            body.close()
            raise
        size = body.tell()
        body.seek(0)
        return Reply(
            body,
            size,
            tuple(told["columns"]),
            int(told["rows"]),
            bool(told["truncated"]),
            snapshot,
            tuple((str(pipeline), str(name)) for pipeline, name in told.get("named", ())),
        )

    def stream_pieces(
        self, request: bytes, allowance: Allowance, check: Callable[[Iterable[Named]], None]
    ) -> Generator[bytes, None, Mapping[str, Any]]:
        """Sends a query, yields the pieces of the answer, and returns facts about the answer.

        The facts are the columns, the number of rows, and whether rows were left out. The time that
        the caller takes between two pieces does not count as the query's. The method calls `check`,
        and raises errors, as `read_reply` does.
        """
        self.is_fit = False
        left, size = allowance.seconds, 0
        try:
            self.way.settimeout(left)
            self.way.sendall(frame_bytes(ASKED, request))
        except TimeoutError:
            raise _too_long(allowance) from None
        except OSError as error:
            raise self._death_error(allowance) from error
        while left > 0:
            self.way.settimeout(left)
            begun = time.monotonic()
            try:
                frame = take_frame(self.way.recv, most=_FRAME_BYTES)
            except TimeoutError:
                break
            except ConnectionError:
                frame = None
            except (OSError, ValueError) as error:
                raise _not_understood(error) from error
            left -= time.monotonic() - begun
            match frame:
                case (kind, content) if (
                    kind == PIECE
                    and (size := size + len(content)) <= allowance.bytes + _SLACK_BYTES
                ):
                    yield content
                case (kind, content) if kind == NAMED:
                    check(_named_in(content))
                    self.way.sendall(frame_bytes(ACCEPTED))
                case (kind, content) if kind == ENDED:
                    told: Mapping[str, Any] = json.loads(content)
                    if not self.answered:
                        self.opening_seconds = (
                            time.monotonic() - self.taken_at - float(told["seconds"])
                        )
                    self.answered += 1
                    self.is_fit = told["is_fit"] is True
                    return told
                case (kind, content) if kind == REFUSED:
                    refusal = json.loads(content)
                    self.has_run_out = refusal["kind"] == "too_much"
                    raise _error_of(refusal, allowance)
                case None:
                    raise self._death_error(allowance)
                case _:
                    raise KappaError(
                        "the query's process gave more than it was to give",
                        hint="ask again; if it stays so, the query is to blame",
                    )
        raise _too_long(allowance)

    def _death_error(self, allowance: Allowance) -> KappaError:
        """Returns the error for a process that exited before it had sent the whole answer.

        The error explains why the process exited.
        """
        found = os.read(self.death, 16)
        code = int(found or b"1")
        if code in {-signal.SIGXCPU, -signal.SIGPROF}:
            return _too_long(allowance)
        self.has_run_out = True
        # Some allocations cannot report a failure, and end the process in several ways.
        return TooMuch(
            "the query's process has ended "
            f"({signal.Signals(-code).name if code < 0 else f'code {code}'}) "
            "before it gave an answer: "
            f"most likely it took more than {memory(allowance.memory)} of memory",
            hint=_LESS.format("serve.query_memory"),
        )

    def kill_process(self) -> None:
        """Kills the process if it runs.

        A thread that waits for the answer then gets an error.
        """
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def end_process(self) -> None:
        """Kills the process if it runs, and closes the socket and the pipe to the process.

        A second call does nothing.
        """
        if self._ended:
            return
        self._ended = True
        self.kill_process()
        for each in (self.handle, self.death):
            os.close(each)
        self.way.close()


class ForkServer:
    """The object through which this process uses the fork server, which creates workers.

    The fork server exits when this process exits, because the exit closes the socket between them.
    """

    def __init__(self, program: Sequence[str], *, start_seconds: float = _START_SECONDS) -> None:
        # An empty folder: a query that reached the folder would find nothing.
        folder = make_folder(Path(tempfile.gettempdir()), SANDBOX)
        self._delete_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # Closed in `end`.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The environment has only the variables of Python; the socket is the only open file.
        environment = {
            "PYTHONPATH": str(_PACKAGES),
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
                cwd=folder,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._start_seconds = start_seconds
        self._control.settimeout(start_seconds)
        # The number of the last request.
        self._asked = 0

    def is_alive(self) -> bool:
        """Returns True while the fork server runs."""
        return self._process.poll() is None

    def make_child(self) -> QueryWorker:
        """Requests a worker process from the fork server, and returns before the process is ready.

        Raises KappaError if the fork server creates no process. Each request has a number, and the
        answer to the request repeats this number. So a late answer to an abandoned request is not
        taken for the answer to the next request.
        """
        self._asked += 1
        way, theirs = socket.socketpair()
        death, deaths = os.pipe()
        try:
            with theirs:
                socket.send_fds(
                    self._control, [str(self._asked).encode()], [theirs.fileno(), deaths]
                )
                pid, handle = self._answer_to(self._asked)
        except OSError as error:
            way.close()
            os.close(death)
            raise KappaError(
                f"no process for a query could be started: {self._last_words() or error}",
                hint="see whether the machine has memory left, then ask again",
            ) from error
        finally:
            os.close(deaths)
        return QueryWorker(pid, handle, way, death)

    def _answer_to(self, number: int) -> tuple[int, int]:
        """Returns the pid and the handle of the child that was created for request `number`."""
        deadline = time.monotonic() + self._start_seconds
        while (left := deadline - time.monotonic()) > 0:
            self._control.settimeout(left)
            answer, handles, _, _ = socket.recv_fds(self._control, 32, 1)
            if not answer:
                raise ConnectionResetError("it has ended")
            answered, pid = map(int, answer.split())
            if answered == number:
                return pid, handles[0]
            # The child of an abandoned request ends by itself, since its socket is closed.
            os.close(handles[0])
        raise TimeoutError("it does not answer")

    def _last_words(self) -> str:
        self._said.seek(0)
        return (self._said.read().decode(errors="replace").strip().splitlines() or [""])[-1]

    def end_server(self) -> None:
        """Ends the fork server and its children."""
        self._control.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
        self._delete_folder()


def _named_in(content: bytes) -> list[Named]:
    try:
        return [(str(pipeline), str(name)) for pipeline, name in json.loads(content)]
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_understood(error) from error


def _not_understood(error: Exception) -> KappaError:
    return KappaError(
        f"the query's process sent what could not be understood: {error}",
        hint="ask again; if it stays so, the query is to blame",
    )


def _too_long(allowance: Allowance) -> TooMuch:
    return TooMuch(
        f"the query took longer than {allowance.seconds:g} s, and was ended",
        hint=_LESS.format("serve.query_seconds"),
    )


def _error_of(found: Mapping[str, str], allowance: Allowance) -> KappaError:
    match found["kind"]:
        case "usage":
            return UsageError(found["message"], hint=found["hint"])
        case "forbidden":
            return Forbidden(found["message"], hint=found["hint"])
        case "too_much":
            return TooMuch(
                f"the query needs more than {memory(allowance.memory)} of memory",
                hint=_LESS.format("serve.query_memory"),
            )
        case "damaged":
            return Damaged(found["message"], hint=found["hint"])
        case _:
            return KappaError(found["message"], hint=found["hint"])
