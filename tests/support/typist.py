"""A process that has imported the program `kappa`, and forks for each command.

A command is a process of its own, and runs the code that its own start would run. Only the second
of CPU is saved that Python needs to import the program. `start` of a testbed, and the wheel's,
import everything.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

# What commands import, but for libraries that start threads as they are imported: a fork takes one
# thread along, and what others hold at that moment would stay held.
_IMPORTED = (
    "cli",
    "kappa.base.settings",
    "kappa.code.code_snapshot",
    "kappa.code.project",
    "kappa.code.spark_child",
    "kappa.kafka.producer",
    "kappa.state.lease",
    "kappa.replay.status.listings",
    "kappa.replay.rollout.plan.make_plan",
    "kappa.replay.rollout.plan.plan_text",
    "kappa.replay.rollout.history",
    "kappa.replay.rollout.plan.saved_plan",
    "kappa.replay.status.run_records",
    "kappa.replay.status.status",
    "kappa.replay.status.status_text",
    "rich.table",
    "kappa.serving.query.render",
)
# The pid of a command, and later its exit code.
_WORD = struct.Struct("i")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Typed:
    """A running command. Its answer is in files, and its exit code arrives through a pipe."""

    pid: int
    out: int
    err: int
    end: int

    def communicate(self, patience_seconds: float, /) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr. On a time-out, kills and raises TimeoutError."""
        ended: list[tuple[int, int]] = []
        try:
            # Not select(): it knows 1024 descriptors, and a long test may have more.
            polled = select.poll()
            polled.register(self.end, select.POLLIN)
            ended = polled.poll(1000 * patience_seconds)
            if not ended:
                raise TimeoutError
            said = os.read(self.end, _WORD.size)
            code = _WORD.unpack(said)[0] if said else -signal.SIGKILL
            return code, _read(self.out), _read(self.err)
        finally:
            if not ended:
                os.kill(self.pid, signal.SIGKILL)
            for descriptor in (self.out, self.err, self.end):
                os.close(descriptor)


@dataclass(slots=True)
class Typist:
    """The process that types, started by the first command; it exits with this process."""

    _end: socket.socket | None = field(default=None)
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], given: str
    ) -> Typed:
        """Runs a command in a folder, with `given` as its stdin."""
        end = self.end(environment["PYTHONPATH"])
        ending, written = os.pipe()
        with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
            stdin.write(given.encode())
            stdin.seek(0)
            request = json.dumps([[*arguments], str(folder), dict(environment)]).encode()
            files = [stdin.fileno(), out.fileno(), err.fileno(), written]
            socket.send_fds(end, [request], files)
            os.close(written)
            (pid,) = _WORD.unpack(os.read(ending, _WORD.size))
            return Typed(pid, os.dup(out.fileno()), os.dup(err.fileno()), ending)

    def end(self, sources: str) -> socket.socket:
        """Returns the socket that takes commands. A shell that inherits it runs typed.py."""
        if self._end is None:
            self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(other.fileno())],
                    pass_fds=[other.fileno()],
                    env={**os.environ, "PYTHONPATH": sources},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        return self._end


def _read(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode()


def _type_on(requests: socket.socket) -> None:
    """Forks for each request, until the other end is closed."""
    for module in _IMPORTED:
        import_module(module)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "an import has started a thread"
    # Children are reaped by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _run(*json.loads(request), *files)
        for descriptor in files:
            os.close(descriptor)


def _run(
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    stdin: int,
    out: int,
    err: int,
    end: int,
) -> None:
    from kappa.commands.main import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(end, False)  # noqa: FBT003  # its signature
    os.write(end, _WORD.pack(os.getpid()))
    for descriptor, number in ((stdin, 0), (out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # The streams are of the kind of the files: a pipe cannot be sought.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, encoding="utf-8")  # noqa: SIM115  # till the end
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["kappa", *arguments]
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  # as Python itself would end
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(end, _WORD.pack(code))
        os._exit(code)


if __name__ == "__main__":
    _type_on(socket.socket(fileno=int(sys.argv[1])))
