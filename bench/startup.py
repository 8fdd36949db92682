"""Measures the start of a job: from the start of its process to its first committed slice.

    python bench --cell startup

In each round, the tail of a new build folds ten thousand events, directly after a run of an empty
JVM (`java -version`) for comparison. The slice's rows must equal the oracle's.
scripts/start_parts.py runs the same steps one after the other, to measure the time of each step.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bids import ensure_input, topic_files, warm_page_cache
from cells import Cell
from ground import ground, say
from kappa_job import BUILD, KappaJob, fold_command
from oracle import Oracle
from project import seconds_of
from rivals import Attempt
from screen import Report, spread_of, table

from kappa.base.errors import KappaError
from kappa.base.java.java import find_java
from kappa.base.process import ensure_session_gone, start_tied
from kappa.engine.job.legs import LegKind
from kappa.state.frontier import Frontiers
from kappa.state.store import Store

SCRIPT = Path(__file__).with_name("scripts") / "start_parts.py"
CELL = Cell("startup", "totals", 10_000, 1_000, 7, ())
_PATIENCE_SECONDS = 120.0
_NAP_SECONDS = 0.01


def main(home: Path, rounds: int) -> Report | None:
    """Measures the cell, and returns its report.

    Returns None if a result differs from the oracle's.
    """
    kappa, java = KappaJob(), find_java().command
    kappa.set_up(home)
    slices, machines, parts = [], [], []
    with ground(home) as here:
        given = ensure_input(here.log, CELL, home / "inputs", home, say)
        oracle = Oracle(here.log.bootstrap_servers, given, CELL, home / "inputs", say)
        warm_page_cache(topic_files(home, CELL.topic))
        # The first fills the disk's cache.
        for number in range(rounds + 1):
            folder = home / "run" / "startup"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            machine = seconds_of(java, "-Xshare:auto", "-version")
            attempt = Attempt(CELL, given, here.log.bootstrap_servers, folder)
            slice_ = _first_slice(kappa, attempt)
            wrong = oracle.differences(kappa.result(attempt))
            if wrong is not None:
                say(f"no figure: the first slice's result is not the oracle's: {wrong}")
                return None
            parts.append(_parts(folder))
            if number:
                slices.append(slice_)
                machines.append(machine)
                say(
                    f"round {number}: {slice_:.2f} s to the first slice, an empty JVM "
                    f"{machine:.2f} s, equal"
                )
            shutil.rmtree(folder)
    return _report(
        slices, machines, {name: median(each[name] for each in parts[1:]) for name in parts[0]}
    )


def _parts(folder: Path) -> Mapping[str, float]:
    """Runs the steps of a job's start, and returns the seconds of each step by name.

    The program that runs the steps ends in the middle of a stream, so Spark prints errors. These
    errors are ignored.
    """
    with (folder / "parts.log").open("wb") as said:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(folder / "parts")],
            check=False,
            stdout=subprocess.PIPE,
            stderr=said,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode != 0:
        raise KappaError(
            f"the steps ended with {done.returncode}", hint=f"see {folder / 'parts.log'}"
        )
    return {str(name): float(seconds) for name, seconds in json.loads(done.stdout).items()}


def _first_slice(kappa: KappaJob, attempt: Attempt) -> float:
    kappa.prepare(attempt)
    servers, end = attempt.bootstrap_servers, attempt.given.offsets
    command = fold_command(attempt.folder, servers, end, leg=LegKind.TAIL).arguments
    frontiers = Frontiers(Store(attempt.folder / ".kappa"), BUILD)
    with (attempt.folder / "output.log").open("wb") as output:
        begun = time.monotonic()
        job = start_tied(command, output=output)
    try:
        while (newest := frontiers.newest()) is None or not newest.offsets.covers(
            attempt.given.offsets
        ):
            if job.poll() is not None or time.monotonic() > begun + _PATIENCE_SECONDS:
                raise KappaError(
                    "the job has ended, or folds nothing",
                    hint=f"see {attempt.folder / 'output.log'}",
                )
            time.sleep(_NAP_SECONDS)
        return time.monotonic() - begun
    finally:
        ensure_session_gone(job.pid)
        job.wait()


def _report(
    slices: Sequence[float], machines: Sequence[float], parts: Mapping[str, float]
) -> Report:
    times = spread_of(slices, "{:.2f}")
    ratio = spread_of([one / other for one, other in zip(slices, machines, strict=True)], "{:.1f}")
    steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
    note = (
        f"From the start of the process to the first committed slice: **{times} s** in "
        f"{len(slices)} rounds, {ratio} times an empty JVM ({median(machines):.2f} s)."
    )
    rows = ((name, f"{seconds:.2f}") for name, seconds in parts.items())
    return Report(
        f"bench startup, {len(slices)} rounds: first slice after {times} s, {ratio} empty "
        f"JVMs; its steps in s: {steps}",
        {"slices": slices, "machines": machines, "parts": parts},
        f"{note}\n\n{table(('step', 'seconds'), rows)}",
    )
