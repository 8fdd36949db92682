"""The benchmarks: compare Kappa with other programs at the same task on the same topic.

    python bench [--cell CELL] [--rounds N] [--events N] [--rivals A,B] [--again] [--report]

`make bench` runs this program; docs/performance.md describes the method. The results are printed to
stdout, and the progress is printed to stderr. Read the modules in this order: cells.py (tasks),
rivals.py (programs), oracle.py (expected results).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import bucket
import change
import changes
import cluster
import collect
import day
import formats
import freshness
import loop
import nexmark_replays
import queries
import rate
import serve
import short
import startup
import tables
import views
from bids import ensure_input, topic_files, warm_page_cache
from cells import CELLS, GROUPS, KAPPA, TASKS, Cell, ensure_enough
from figures import Round, comparable
from ground import Ground, ground, heed_signals, last_line, machine, now, say, take, under
from oracle import Oracle
from plot import plot
from rich.console import Console
from rivals import Attempt, NotThereError, Rival, cores, every_rival, set_up
from rounds import Run, Runs, code_of
from screen import (
    Report,
    footing,
    grid,
    load,
    page,
    per_core,
    placed,
    refusals,
    title,
    told,
    versions,
    with_ages,
)

from kappa.base.errors import KappaError

TREE = Path(__file__).resolve().parents[1]
# To start, and to end, on a machine that is busy.
_MARGIN_SECONDS = 600.0
# Cells without rivals: the function that measures, the option that sets its size, and the default.
# The rounds of the day are minutes.
_OWN: Mapping[str, tuple[Callable[[Path, int], Report | None], str, int]] = {
    "queries": (queries.main, "rounds", 9),
    "serve": (serve.main, "events", 10_000_000),
    "change": (change.main, "rounds", 2),
    "collect": (collect.main, "rounds", 3),
    "changes": (changes.main, "events", 2_000_000),
    "loop": (loop.main, "rounds", 20),
    "startup": (startup.main, "rounds", startup.CELL.rounds),
    "freshness": (freshness.main, "events", 5_000_000),
    # The events are those of a second: the highest rate that is tried.
    "rate": (rate.main, "events", 200_000),
    "short": (short.main, "events", 1_000_000),
    "day": (day.main, "rounds", 20),
    "tables": (tables.main, "rounds", 60),
    "formats": (formats.main, "rounds", 2),
    "views": (views.main, "events", 5_000_000),
    "nexmark": (nexmark_replays.main, "events", 2_000_000),
    "cluster": (cluster.main, "events", 5_000_000),
    "bucket": (bucket.main, "events", 5_000_000),
}


def main() -> int:
    """Measures or reports a cell, as a program. Returns 0 if Kappa has a result, otherwise 1."""
    given = _parsed()
    # Otherwise each process that is measured compiles its modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    heed_signals()
    home = Path(given.home).absolute()
    if given.cell in _OWN:
        return _run_own(given.cell, home, given)
    cells = [
        CELLS[name].sized(events=given.events, rounds=given.rounds) for name in GROUPS[given.cell]
    ]
    for cell in cells:
        ensure_enough(cell.events)
    runs = Runs(home / "results.json")
    code = code_of(_code())
    if not given.report:
        _measure(cells, home, runs, code, only=given.rivals, again=given.again)
    return max(
        _tell(cell, runs, code, home, line_only=given.line, into=given.into) for cell in cells
    )


def _measure(
    cells: Sequence[Cell], home: Path, runs: Runs, code: str, *, only: Sequence[str], again: bool
) -> None:
    rivals = every_rival()
    chosen = {
        cell: {name: rivals[name] for name in cell.rivals if not only or name in only}
        for cell in cells
    }
    if again:
        for cell in cells:
            runs.forget(cell, code)
    begun = {cell: runs.open(cell, code, now=now(), machine=machine()) for cell in cells}
    if not any(any(begun[cell].due(cell.rounds, list(chosen[cell]))) for cell in cells):
        return
    with ground(home) as here:
        for cell, run in begun.items():
            say(title(run))
            versions_now, missing = set_up(chosen[cell], home, say)
            run.versions |= versions_now
            run.missing = {
                name: why for name, why in run.missing.items() if name not in chosen[cell]
            } | missing
            for name, why in missing.items():
                say(f"{name} {why}")
            _run(
                cell,
                run,
                runs,
                {name: rival for name, rival in chosen[cell].items() if name not in missing},
                here,
            )


def _run(cell: Cell, run: Run, runs: Runs, rivals: Mapping[str, Rival], here: Ground) -> None:
    due = list(run.due(cell.rounds, list(rivals)))
    runs.save()
    if not due:
        return
    given = ensure_input(here.log, cell, here.home / "inputs", here.home, say)
    oracle = Oracle(here.log.bootstrap_servers, given, cell, here.home / "inputs", say)
    for number, name in due:
        # A machine may take pages back meanwhile.
        warm_page_cache(topic_files(here.home, cell.topic))
        folder = here.home / "run" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        done = _round(
            number,
            name,
            rivals[name],
            Attempt(cell, given, here.log.bootstrap_servers, folder),
            oracle,
        )
        run.put(done)
        runs.save()
        say(_line(done, cell))
        _keep_log(
            folder / "output.log",
            here.home / "logs" / f"{cell.topic}.{cell.name}.{number}.{name}.log",
        )
        if done.refused is None:
            shutil.rmtree(folder, ignore_errors=True)
        # Kafka Streams keeps its state in topics, and one that was ended leaves them.
        for left in here.log.topics():
            if not left.startswith("bids."):
                here.log.delete(left)


def _round(number: int, name: str, rival: Rival, attempt: Attempt, oracle: Oracle) -> Round:
    """Runs one rival once, and returns the measurements. A failure is recorded in the round."""
    blank = Round(
        number, name, attempt.cell.events, wall=0.0, cpu=0.0, rss=0, load=os.getloadavg()[0]
    )
    try:
        command = rival.prepare(attempt)
        took = take(
            command,
            attempt.folder,
            _MARGIN_SECONDS + attempt.cell.events / TASKS[attempt.cell.task].slowest,
        )
        done = replace(blank, wall=took.wall, cpu=took.cpu, rss=took.rss)
        if took.timed_out or took.code != 0:
            how = "was ended: it took too long" if took.timed_out else f"ended with {took.code}"
            return replace(done, refused=f"it {how}: {last_line(attempt.folder)}")
        differences = oracle.differences(rival.result(attempt))
        if differences is not None:
            return replace(
                done, refused=f"its result is not the oracle's: {differences}", unequal=True
            )
        return replace(done, warm=rival.warm(attempt))
    except NotThereError as error:
        return replace(blank, refused=str(error), unequal=True)
    except Exception as error:  # noqa: BLE001  # a rival's failure is told, and stops no other
        return replace(blank, refused=f"{type(error).__name__}: {error}")


def _keep_log(log: Path, kept: Path) -> None:
    if log.exists():
        shutil.copyfile(log, kept)


def _line(done: Round, cell: Cell) -> str:
    begin = f"round {done.number} of {cell.rounds}, {done.rival}: "
    if done.refused is not None:
        return f"{begin}no figure: {done.refused}"
    warm = "" if done.warm is None else f" (warm {done.warm.rate:,.0f})"
    return (
        f"{begin}{done.wall:.1f} s, {done.events / done.wall:,.0f} events/s{warm}, CPU "
        f"{done.cpu:.1f} s, peak {done.rss / 2**30:.2f} GiB, equal; load before {done.load:.2f}"
    )


def _tell(
    cell: Cell, runs: Runs, code: str, home: Path, *, line_only: bool, into: Path | None
) -> int:
    run = runs.last(cell, code)
    if run is None:
        print(f"{cell.name} was not run at this size with this code")
        return 1
    found = told(run, cell.rivals)
    if not line_only:
        Console(width=None if sys.stdout.isatty() else 180).print(grid(run, found, cores()))
        print(versions(run))
        for text in [
            *(f"no figure of {text}" for text in refusals(found)),
            *(per_core(found, cores()) if cell.task == "sessions" else ()),
        ]:
            print(text)
    print(comparable(cell.name, cell.events, cell.keys, found, load(run)))
    report = home / "report"
    report.mkdir(exist_ok=True)
    drawn, written = plot(title(run), footing(run, cores()), found), page(run, found, cores())
    (report / f"{cell.name}-{cell.events}.svg").write_text(drawn, encoding="utf-8")
    (report / f"{cell.name}-{cell.events}.md").write_text(written, encoding="utf-8")
    if into is not None:
        picture = into.with_name(f"{into.stem}-{cell.name}.svg")
        _place(into, cell.name, f"![{title(run)}]({picture.name})\n\n{written}")
        picture.write_text(drawn, encoding="utf-8")
    return 0 if any(figure.rival == KAPPA and figure.rounds for figure in found) else 1


def _run_own(cell: str, home: Path, given: argparse.Namespace) -> int:
    """Measures a cell without rivals, and writes its report, with the load before the measurement.

    Returns 0 if there is a report, otherwise 1.
    """
    measure, option, number = _OWN[cell]
    load_before = os.getloadavg()[0]
    report = measure(home, getattr(given, option) or number)
    if report is None:
        return 1
    print(f"{report.line}; load {load_before:.1f}")
    folder = home / "report"
    folder.mkdir(parents=True, exist_ok=True)
    document = {"load": load_before, "measured": report.measured}
    (folder / f"{cell}.json").write_text(
        json.dumps(document, indent=1, default=asdict), encoding="utf-8"
    )
    if given.into is not None:
        _place(given.into, cell, f"{report.page}\n\n{under(load_before)}")
    return 0


def _place(into: Path, cell: str, section: str) -> None:
    """Replaces a cell's section in a document, and marks sections with older measurements."""
    document = placed(into.read_text(encoding="utf-8"), cell, section)
    changelog = (TREE / "CHANGELOG.md").read_text(encoding="utf-8")
    into.write_text(with_ages(document, changelog), encoding="utf-8")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python bench",
        description="Who is how fast at the same task, on the same log, with the same result.",
    )
    parser.add_argument("--cell", default="standard", choices=[*sorted(GROUPS), *_OWN])
    parser.add_argument(
        "--rounds",
        type=int,
        help="how many (of the day: minutes); the cell's own number where it is not given",
    )
    parser.add_argument("--events", type=int, help="how many; likewise")
    parser.add_argument(
        "--rivals",
        type=lambda text: tuple(text.split(",")),
        default=(),
        help="only these, with commas between",
    )
    parser.add_argument(
        "--again", action="store_true", help="forget what this cell gave with this code"
    )
    parser.add_argument("--report", action="store_true", help="run nothing, tell what is there")
    parser.add_argument(
        "--line",
        action="store_true",
        help="tell only a line of ratios, to hold beside that of another day",
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="the document whose section of this cell is written anew, and its plot beside it",
    )
    parser.add_argument("--home", default=str(TREE / ".bench"), help="the folder of the bench")
    given = parser.parse_args()
    unknown = [
        name
        for name in given.rivals
        if name not in {rival for cell in CELLS.values() for rival in cell.rivals}
    ]
    if unknown:
        parser.error(f"there is no rival {unknown[0]}")
    return given


def _code() -> Mapping[str, bytes]:
    """Maps the path of each file that may influence the results to the file's content.

    These are the files of Kappa and of the bench, and the list of the packages' versions.
    """
    files = [
        *(TREE / "kappa").rglob("*"),
        *Path(__file__).parent.rglob("*"),
        TREE / "requirements" / "run.lock",
    ]
    return {
        str(file.relative_to(TREE)): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KappaError as error:
        print(f"{error.message}\n{error.hint}".strip(), file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print("interrupted: what was run is kept, and the same command goes on", file=sys.stderr)
        sys.exit(130)
