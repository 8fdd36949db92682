"""The bench's folder, its broker with the inputs, and the processes that the bench starts.

Only one bench at a time can use the folder. However this process exits, no other process is left
running, because the broker and each rival exit with this process. If a rival has left processes
running, the bench finds them by a mark in their environment (demo/processes/family.py), and kills
them.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from rivals import Command

from demo.processes.family import MARK, ensure_gone
from kappa.base.errors import KappaError
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log

_MEASURE = Path(__file__).with_name("measure.py")
# Beside what a command may take: starting, and ending what it leaves.
_MARGIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ground:
    """The bench's folder, and a client of the broker that runs in it."""

    home: Path
    log: Log


@dataclass(frozen=True, slots=True)
class Took:
    """The cost of a command: exit code or timeout, wall-clock and CPU seconds, peak memory."""

    code: int
    timed_out: bool
    wall: float
    cpu: float
    rss: int


def heed_signals() -> None:
    """Makes SIGTERM end this process as Ctrl-C does, so that no child process is left running."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupted)


@contextmanager
def ground(home: Path) -> Iterator[Ground]:
    """Locks the folder `home`, and runs a broker in it during the block.

    Exits this process if another bench uses the folder.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another bench runs in {home}: wait for it, or give another folder: BENCH_HOME=..."
            ) from None
        java = find_java()
        broker = Broker.start(home, ensure_jars(java), java, heap="1g", syncs=False)
        try:
            yield Ground(home, Log(broker.bootstrap_servers))
        finally:
            broker.stop()


def take(command: Command, folder: Path, seconds: float) -> Took:
    """Runs a command for at most `seconds`, and leaves none of its processes running.

    The command's output is written to `output.log` in the folder.
    """
    mark = secrets.token_hex(8)
    answer = folder / "took.json"
    environment = {**os.environ, **command.environment, MARK: mark}
    measuring = [
        sys.executable,
        str(_MEASURE),
        str(answer),
        str(folder / "output.log"),
        str(seconds),
        *command.arguments,
    ]
    # In a session of its own: a Ctrl-C at the terminal is this process's to answer.
    with (folder / "measure.log").open("wb") as said:
        process = start_tied(measuring, output=said, environment=environment)
    try:
        code = process.wait(seconds + _MARGIN_SECONDS)
        if code != 0:
            raise OSError(f"measuring ended with {code}, see {folder / 'measure.log'}")
        return Took(**json.loads(answer.read_text(encoding="utf-8")))
    finally:
        process.kill()
        process.wait()
        ensure_gone(mark)


def take_whole(command: Command, folder: Path, seconds: float, what: str) -> Took:
    """Runs a command as `take` does. Raises KappaError, with `what`, if the command fails."""
    took = take(command, folder, seconds)
    if took.timed_out or took.code != 0:
        raise KappaError(
            f"{what} ended with {took.code}: {last_line(folder)}",
            hint=f"see {folder / 'output.log'}",
        )
    return took


def last_line(folder: Path) -> str:
    """Returns the last line of a command's output, from `output.log` in the command's folder."""
    log = folder / "output.log"
    said = (
        log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if log.exists()
        else []
    )
    return said[-1].strip()[:300] if said else "it left no word"


def machine() -> str:
    """Returns a line about this machine: processor, memory, operating system, and versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    kilobytes = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    return (
        f"{model}, {kilobytes / 2**20:.0f} GiB, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}"
    )


def say(text: str) -> None:
    """Prints a progress line to stderr, because stdout is for the results."""
    print(text, file=sys.stderr, flush=True)


def under(load: float) -> str:
    """Returns the conditions of figures: machine, load average before the run, and time now."""
    return fill(f"{machine()}; load average before it {load:.2f}; {now()}.", 100)


def now() -> str:
    """Returns the current time, to the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _lines(file: str) -> Sequence[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()


def _interrupted(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
