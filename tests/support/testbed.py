"""A project with the whole platform, all of it real.

The testbed has real `kappa` commands, a real broker, and jobs in their own JVMs. Each of its
processes has a mark in its environment (demo/processes/family.py), and is ended by its id when the
test ends.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from typist import Typist

from demo.processes.family import MARK, ensure_gone, members
from kappa.base.settings import load_settings
from kappa.kafka.client import Log
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.state import State
from kappa.replay.status.run_records import running
from kappa.serving.query.query import answer_query
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import open_store

TREE = Path(__file__).resolve().parents[2]
_NAP_SECONDS = 0.05
PATIENCE_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Said:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The command's answer to `-o json`."""
        assert self.code == 0, self
        return json.loads(self.out)


class _Command(Protocol):
    """A running command."""

    def communicate(self, patience_seconds: float, /) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr. On a time-out, kills and raises TimeoutError."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A command in its own new process."""

    process: subprocess.Popen[str]
    given: str | None

    def communicate(self, patience_seconds: float, /) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(self.given, timeout=patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise TimeoutError from None
        return self.process.returncode, out, err


class Testbed:
    """A project and its running processes."""

    __test__ = False
    # What a person types as `kappa`.
    program: Sequence[str] = (sys.executable, "-P", "-m", "cli")
    # Who types the commands that a test waits for; None: each has a start of its own.
    typist: Typist | None = Typist()

    def __init__(
        self, folder: Path, settings: str = "", *, listen: str = "", whole: bool = False
    ) -> None:
        """Makes the project; HTTP is served at `listen`, or nowhere by default.

        A `whole` project has a spare, lets builds rest and tries the law of slices, as users'
        projects do.
        """
        self.folder = folder
        self._mark = secrets.token_hex(8)
        # Each takes a JVM: tests/replay/rollout/test_law.py has the law, test_warm_spares.py
        # spares, and test_resting.py builds at rest.
        without = {
            "KAPPA__VERIFY__LAW_RECORDS": "0",
            "KAPPA__ENGINE__SPARES": "0",
            "KAPPA__ENGINE__REST_AFTER": "0",
        }
        self.environment = {
            **os.environ,
            MARK: self._mark,
            "PYTHONPATH": str(TREE),
            "KAPPA__SERVE__LISTEN": listen,
            **({} if whole else without),
        }
        (folder / "pipelines").mkdir(parents=True, exist_ok=True)
        (folder / "kappa.toml").write_text(settings, encoding="utf-8")
        self.store = open_store(load_settings(folder))

    def declare(self, name: str, text: str) -> None:
        """Writes a pipeline's file."""
        (self.folder / "pipelines" / f"{name}.py").write_text(text, encoding="utf-8")

    def kappa(self, *arguments: str, given: str | None = None, **environment: str) -> Said:
        """Runs a command to its end, which may be an error."""
        if environment or self.typist is None:
            return self._ended(_Started(self.start(*arguments, **environment), given), arguments)
        return self.at_once(arguments, given=given)[0]

    def at_once(self, *commands: Sequence[str], given: str | None = None) -> list[Said]:
        """Runs commands in parallel, each to its end. The commands must change nothing."""
        assert self.typist is not None
        typed = [
            self.typist.start(command, self.folder, self.environment, given or "")
            for command in commands
        ]
        return [self._ended(*each) for each in zip(typed, commands, strict=True)]

    def _ended(self, command: _Command, arguments: Sequence[str]) -> Said:
        try:
            said = Said(*command.communicate(PATIENCE_SECONDS))
        except TimeoutError:
            raise AssertionError(f"kappa {arguments} did not end; {self.logs()}") from None
        assert "Traceback" not in said.err, said.err
        return said

    def must(self, *arguments: str, given: str | None = None, **environment: str) -> Said:
        """Runs a command that has to succeed."""
        said = self.kappa(*arguments, given=given, **environment)
        assert said.code == 0, (
            f"kappa {' '.join(arguments)} ended with {said.code}: "
            f"{said.out} {said.err} {self.logs()}"
        )
        return said

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a command and does not wait for it."""
        return subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns the rows of a query, as `kappa query` finds them, without a new process."""
        found = answer_query(self.store, sql)
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def state(self) -> State:
        """Returns the current state of the journal."""
        return fold_records(Journal(self.store).after(0))

    def frontier(self, build: str) -> Frontier | None:
        """Returns the newest published frontier of a build."""
        return Frontiers(self.store, build).newest()

    def live(self, pipeline: str) -> str:
        """Returns the build that serves."""
        return self.state().serving[pipeline]

    @property
    def supervisor_pid(self) -> int:
        """Returns the process id of the project's supervisor."""
        found = running(load_settings(self.folder))
        assert found is not None, self.logs()
        return found.pid

    @property
    def log(self) -> Log:
        """Returns a client of the broker."""
        found = running(load_settings(self.folder))
        assert found is not None, self.logs()
        return Log(found.bootstrap_servers)

    def wait(
        self, until: Callable[[], bool], what: str, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits until a condition is true; otherwise fails with all logs."""
        deadline = monotonic() + patience_seconds
        while not until():
            assert monotonic() < deadline, f"{what} did not come; {self.logs()}"
            sleep(_NAP_SECONDS)

    def wait_until_folded(self, pipeline: str, end: Offsets) -> None:
        """Waits until the serving build has folded the log up to `end`."""
        self.wait(
            lambda: (
                (found := self.frontier(self.live(pipeline))) is not None
                and found.offsets.covers(end)
            ),
            f"{end}",
        )

    def pids(self, *words: str) -> list[int]:
        """Lists the processes of this project whose command line has all of these words."""
        return [
            member.pid
            for member in members(self._mark)
            if all(word in member.command for word in words)
        ]

    def memory(self) -> int:
        """Returns the resident memory of all processes of the project together, in bytes."""
        return sum(member.resident for member in members(self._mark))

    def logs(self) -> str:
        """Returns the last lines of every log, for the message of a failed test."""
        found = sorted(self.store.local.path("logs").glob("*.log"))
        return "\n".join(
            f"== {file.name}\n"
            + "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
            for file in found
            if file.name != "broker.log"
        )

    def ensure_gone(self) -> None:
        """Ends all remaining processes, each by its id."""
        ensure_gone(self._mark)


# The columns that functions return, by version, as found by earlier tests of this run: finding them
# takes a JVM each time.
_described: dict[str, bytes] = {}


@contextmanager
def platform(
    folder: Path, settings: str = "", *, listen: str = "", whole: bool = False, **files: str
) -> Iterator[Testbed]:
    """Runs a project with these pipelines and their topics; everything ends with the block.

    Asserts that no process is left.
    """
    bed = Testbed(folder, settings, listen=listen, whole=whole)
    try:
        for name, text in files.items():
            bed.declare(name, text)
        # As a command would: what Kappa keeps is for its user alone.
        before = os.umask(0o077)
        for name, answer in _described.items():
            bed.store.put(name, answer)
        os.umask(before)
        bed.must("up", "-d")
        bed.must("topics", "create")
        yield bed
        _described.update(
            (name, bed.store.get(name) or b"") for name in bed.store.names("cache/describe")
        )
        bed.must("down")
        left = bed.pids()
        assert not left, f"left running: {left}"
    finally:
        bed.ensure_gone()
