"""Random faults of a platform, one after the other: kills, stops, hangs and a full disk."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from meanwhile import Beside, note
from testbed import Said, Testbed
from victims import (
    ARCHIVER,
    BROKER,
    CANDIDATE,
    HTTP,
    LIVE,
    SUPERVISOR,
    VERIFIER,
    go_on,
    kill,
    pids_of,
    stop,
)

from kappa.base.settings import load_settings
from kappa.replay.status.run_records import running
from kappa.state.build import folded_by

VICTIMS = (SUPERVISOR, LIVE, "idle job", CANDIDATE, VERIFIER, ARCHIVER, HTTP, BROKER)
# A hung job is ended by the supervisor; of all else nobody can tell that it is stopped.
_JOBS = (LIVE, "idle job", CANDIDATE)
_REST_SECONDS = (2.0, 8.0)
_STOPPED_SECONDS = (0.5, 8.0)
_FULL_SECONDS = (2.0, 8.0)
_DISK_IN = 12
_PATIENCE_SECONDS = 600.0


class Chaos(Beside):
    """Causes one fault after the other; `done` counts the faults by kind."""

    def __init__(self, bed: Testbed, seed: int, disk: Path | None) -> None:
        """Takes the platform, and the folder of the platform's own file system, if there is one."""
        super().__init__()
        self._bed = bed
        self._draw = random.Random(seed)
        self._disk = disk
        self.done: Counter[str] = Counter()

    def go_on(self) -> None:
        if self._disk is not None and not self._draw.randrange(_DISK_IN):
            self._fill_disk(self._disk)
        else:
            victim, act = self._draw.choice(VICTIMS), self._draw.choice(self._acts())
            act(victim)

    def rest(self) -> None:
        self.ends.wait(self._draw.uniform(*_REST_SECONDS))

    def _acts(self) -> tuple[Callable[[str], None], ...]:
        return self._kill, self._kill, self._stop, self._hang

    def _pids(self, victim: str) -> list[int]:
        state, store = self._bed.state(), self._bed.store
        active = state.active("shop")
        builds = {
            LIVE: state.serving.get("shop"),
            "idle job": state.idle.get("shop"),
            CANDIDATE: None if active is None else active.build,
        }
        return pids_of(
            self._bed,
            victim,
            {name: folded_by(store, build) for name, build in builds.items() if build},
        )

    def _did(self, what: str, victim: str, pids: list[int]) -> None:
        if pids:
            self.done[f"{what} {victim}"] += 1
            note(self._bed, f"{what} {victim} {pids}")

    def _kill(self, victim: str) -> None:
        killed = [pid for pid in self._pids(victim) if kill(pid)]
        self._did("kill", victim, killed)
        if victim == SUPERVISOR:
            ensure_up(self._bed, "chaos")

    def _stop(self, victim: str) -> None:
        stopped = [pid for pid in self._pids(victim) if stop(pid)]
        self._did("stop", victim, stopped)
        if stopped:
            self.ends.wait(self._draw.uniform(*_STOPPED_SECONDS))
        for pid in stopped:
            go_on(pid)

    def _hang(self, victim: str) -> None:
        if victim in _JOBS:
            hung = [pid for pid in self._pids(victim) if stop(pid)]
            self._did("hang", victim, hung)
            self._bed.wait(
                lambda: not {*hung} & {*self._bed.pids()}, f"the end of the hung {victim} {hung}"
            )

    def _fill_disk(self, disk: Path) -> None:
        filler = disk / "filler"
        try:
            fill(filler)
            self.done["full disk"] += 1
            note(self._bed, "full disk")
            self.ends.wait(self._draw.uniform(*_FULL_SECONDS))
        finally:
            filler.unlink(missing_ok=True)


def fill(filler: Path) -> None:
    """Takes all the space that is left on the disk, without writing to most of it."""
    with filler.open("wb", buffering=0) as file:
        free = shutil.disk_usage(filler.parent).free
        with suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, free - (1 << 20)))
        file.seek(0, os.SEEK_END)
        for size in (1 << 16, 512):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def typed(bed: Testbed, by: str, *arguments: str) -> Said:
    """Runs an operator's command to its end, in a new process, and judges the result."""
    process = bed.start(*arguments, KAPPA_BY=by)
    note(bed, f"{by}: {' '.join(arguments)}")
    out, err = process.communicate(timeout=_PATIENCE_SECONDS)
    note(bed, f"{by}: {' '.join(arguments)} ended with {process.returncode}: {err!r}")
    return judged(Said(process.returncode, out, err), arguments)


def judged(said: Said, arguments: tuple[str, ...]) -> Said:
    """Asserts that a command has succeeded, or has failed with a message, not a traceback."""
    what = f"kappa {' '.join(arguments)}: {said}"
    assert said.code in range(7), what
    assert "Traceback" not in said.err, what
    assert said.code == 0 or "error: " in said.err or "error: " in said.out or said.out, what
    return said


def ensure_up(bed: Testbed, by: str) -> None:
    """Runs `kappa up -d` once no supervisor runs, as an operator would."""
    settings = load_settings(bed.folder)
    bed.wait(lambda: running(settings) is None, "the end of the supervisor")
    said = typed(bed, by, "up", "-d")
    assert said.code == 0, said
