"""The finished rounds, in one file for all cells. A finished round is not run again.

A run is one cell at one size with one state of the code. After a change of any file of the bench or
of Kappa, new rounds belong to another run. Figures never combine rounds of two runs. The file is
replaced after each round, so an interrupted bench continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cells import Cell
from figures import Round, Warm

_FORMAT = 1


@dataclass(slots=True)
class Run:
    """The rounds of one cell, with the rivals' versions, the missing rivals, and the machine."""

    cell: str
    task: str
    events: int
    keys: int
    code: str
    begun: str
    machine: str
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    def is_of(self, cell: Cell, code: str) -> bool:
        """Returns True if the run belongs to this cell, with the same size and the same code."""
        return (self.cell, self.task, self.events, self.keys, self.code) == (
            cell.name,
            cell.task,
            cell.events,
            cell.keys,
            code,
        )

    def due(self, rounds: int, rivals: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yields the rounds to run, as (number, rival), with the rivals in turns (A-B-A-B).

        If a round was interrupted, all its rivals run again, because a ratio compares measurements
        that follow each other. If a rival failed or returned a wrong result, its run is not
        repeated.
        """
        done = {(each.number, each.rival) for each in self.rounds}
        for number in range(1, rounds + 1):
            if any((number, rival) not in done for rival in rivals):
                yield from ((number, rival) for rival in rivals)

    def put(self, done: Round) -> None:
        """Adds a finished round, and removes an earlier round with the same number and rival."""
        self.rounds = [
            each for each in self.rounds if (each.number, each.rival) != (done.number, done.rival)
        ] + [done]


class Runs:
    """All runs in the file, the newest last."""

    def __init__(self, file: Path) -> None:
        """Reads the file if it exists. Otherwise there are no runs."""
        self._file = file
        self.all: list[Run] = _parsed(file) if file.exists() else []

    def open(self, cell: Cell, code: str, *, now: str, machine: str) -> Run:
        """Returns the run of a cell with this code. If there is none, begins a new run."""
        found = self.last(cell, code)
        if found is None:
            found = Run(cell.name, cell.task, cell.events, cell.keys, code, now, machine)
            self.all.append(found)
        return found

    def forget(self, cell: Cell, code: str) -> None:
        """Deletes the run of a cell with this code."""
        self.all = [run for run in self.all if not run.is_of(cell, code)]

    def last(self, cell: Cell, code: str) -> Run | None:
        """Returns the run of a cell with this code, or None if it was never begun."""
        return next((run for run in self.all if run.is_of(cell, code)), None)

    def save(self) -> None:
        """Writes all runs to the file. An earlier file is replaced as a whole."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(".new")
        written.write_text(
            json.dumps({"format": _FORMAT, "runs": [asdict(run) for run in self.all]}, indent=1),
            encoding="utf-8",
        )
        written.replace(self._file)


def code_of(files: Mapping[str, bytes]) -> str:
    """Returns a short digest of the names and contents of the code's files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def _parsed(file: Path) -> list[Run]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        assert found["format"] == _FORMAT, f"its format is {found['format']}"
        return [
            Run(**{**run, "rounds": [_round(each) for each in run["rounds"]]})
            for run in found["runs"]
        ]
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{file} cannot be read ({error}); move it away to begin anew") from error


def _round(found: dict[str, Any]) -> Round:
    return Round(**{**found, "warm": None if found["warm"] is None else Warm(**found["warm"])})
