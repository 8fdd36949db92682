"""Consumers that are kept running. Each is a process that continues from its book."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from book import Applied, last_applied
from meanwhile import Beside, beside
from testbed import Testbed
from victims import COMMAND, CONSUMER, kill, pids_of

_REST_SECONDS = 0.2
_PROGRAM = Path(__file__).with_name("consuming.py")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A consumer: its way to read (command, events, topic), and its table or topic."""

    way: str
    name: str
    table: str

    @property
    def book(self) -> str:
        return f"{self.way}-{self.name}.db"


class Consumers(Beside):
    """Starts each consumer, and restarts it whenever it has ended; `starts` counts the starts."""

    def __init__(self, bed: Testbed, folder: Path, wanted: tuple[Wanted, ...]) -> None:
        super().__init__()
        self._bed = bed
        self._folder = folder
        self._wanted = wanted
        self._running: dict[Wanted, subprocess.Popen[bytes]] = {}
        self.starts = 0

    def go_on(self) -> None:
        for each in self._wanted:
            process = self._running.get(each)
            if process is None or process.poll() is not None:
                self._running[each] = self._start(each)
                self.starts += 1

    def rest(self) -> None:
        self.ends.wait(_REST_SECONDS)

    def _start(self, wanted: Wanted) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(_PROGRAM), wanted.way, wanted.name]
        with (self._folder / f"{wanted.book}.log").open("ab") as output:
            return subprocess.Popen(
                [*command, str(self.book(wanted)), str(self._bed.folder)],
                env=self._bed.environment,
                stdout=output,
                stderr=output,
            )

    def book(self, wanted: Wanted) -> Path:
        """Returns the file of a consumer's book."""
        return self._folder / wanted.book

    def last(self, wanted: Wanted) -> Applied | None:
        """Returns the last change set that a consumer has applied."""
        return last_applied(self.book(wanted))

    def of_tables(self) -> Iterator[Wanted]:
        """Yields the consumers that read a table's changes, and therefore see each switch."""
        return (each for each in self._wanted if each.way != "topic")

    def have(self, generation: int) -> bool:
        """Returns True once all consumers of tables have reached that generation."""
        found = (self.last(each) for each in self.of_tables())
        return all(each is not None and each.generation >= generation for each in found)

    def end(self) -> None:
        """Kills the consumers, and the commands that they have left running."""
        for process in self._running.values():
            process.kill()
            process.wait()
        for what in (CONSUMER, COMMAND):
            for pid in pids_of(self._bed, what, {}):
                kill(pid)

    def said(self) -> str:
        """Returns the end of each consumer's output, for the message of a failed test."""
        return "\n".join(
            f"== {each.book}\n{(self._folder / f'{each.book}.log').read_text()[-3000:]}"
            for each in self._wanted
        )


@contextmanager
def consuming(bed: Testbed, folder: Path, *wanted: Wanted) -> Iterator[Consumers]:
    """Keeps consumers running within the block."""
    consumers = Consumers(bed, folder, wanted)
    try:
        with beside(consumers):
            yield consumers
    finally:
        consumers.end()
