"""Measures `kappa dev`: the time from saving a file until the changed rows are printed.

    python bench --cell loop

The project has one pipeline, its sample events and no broker. `kappa dev` runs as users run it, and
the cell reads its output lines. Before each save, the cell changes the pipeline's function, and
`kappa dev` must report changed rows.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ground import say
from screen import Report, spread_of

from kappa.base.errors import KappaError

TREE = Path(__file__).resolve().parents[1]
EVENTS = 4_000
_FIRST_TARGET, _TARGET = 6.0, 2.0
_PATIENCE_SECONDS = 300.0
_ANSWERED = "waits for the next save"
_PIPELINE = """
from kappa import Table, Topic, View, count, pipeline, sum_

VISITS = Topic("visits", partitions=2, key="visitor", event="visitor string, page string, ms int")
FOLD = {{"visits": count(), "ms": sum_("ms")}}
LONG = View("long_pages", "select page, ms // visits as mean from pages where ms > visits")


@pipeline(reads={{"visits": VISITS}}, writes=[Table("pages", keys=("page",), fold=FOLD), LONG])
def web(visits):
    return {{"pages": visits.where("ms >= {least}")}}
"""


def main(home: Path, rounds: int) -> Report | None:
    """Measures the time until the first answer, and the time from each save to its answer.

    `rounds` is the number of saves.

    Returns None if an answer did not report changed rows.
    """
    folder = home / "run" / "loop"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("pipelines", "events"):
        (folder / name).mkdir(parents=True)
    (folder / "kappa.toml").touch()
    file = folder / "pipelines" / "web.py"
    file.write_text(_PIPELINE.format(least=0), encoding="utf-8")
    events = (
        {"visitor": f"v{number % 50}", "page": f"/{number % 40}", "ms": number % 100}
        for number in range(EVENTS)
    )
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    (folder / "events" / "visits.ndjson").write_text(lines, encoding="utf-8")
    took = []
    with (home / "loop.log").open("wb") as errors:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "dev"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TREE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            answers = _Answers(process)
            answers.next()
            first = time.monotonic() - begun
            say(f"first answer: {first:.2f} s")
            for number in range(1, rounds + 1):
                begun = time.monotonic()
                file.write_text(_PIPELINE.format(least=number), encoding="utf-8")
                answer = answers.next()
                took.append(time.monotonic() - begun)
                say(f"save {number}: {took[-1]:.2f} s")
                if not any("pages:" in line and "changed" in line for line in answer):
                    say(f"no figure: an answer has no row that changed: {answer}")
                    return None
        finally:
            process.terminate()
            process.wait()
    shutil.rmtree(folder)
    return _report(first, took)


class _Answers:
    """Groups the output lines of `kappa dev` into answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines = queue.SimpleQueue[str | None]()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def next(self) -> list[str]:
        """Waits for an answer, and returns its lines."""
        found = list[str]()
        while not found or _ANSWERED not in found[-1]:
            line = self._lines.get(timeout=_PATIENCE_SECONDS)
            if line is None:
                raise KappaError("kappa dev has ended", hint="see loop.log")
            found.append(line)
        return found

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _report(first: float, took: Sequence[float]) -> Report:
    spread = spread_of(took, "{:.2f}")
    return Report(
        f"bench loop, {len(took)} saves: p50 {median(took):.2f} s ({spread}); first answer "
        f"{first:.2f} s",
        {"first": first, "took": took},
        f"From a save to its rows: **{spread} s** in {len(took)} saves (target: "
        f"{_TARGET:g} s), on {EVENTS:,} sample events. From the start of `kappa dev` to its "
        f"first answer: {first:.1f} s (target: {_FIRST_TARGET:g} s).",
    )
