"""The second fold of a build's log, in a child process and a folder of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kappa.base.errors import KappaError
from kappa.base.process import LOW_PRIORITY, ensure_session_gone, start_tied
from kappa.base.program import command_of, project_options
from kappa.base.scratch import PROVE, make_folder
from kappa.base.settings import Settings
from kappa.base.units import pace_text
from kappa.replay.rollout.prove.provable import ProofLog, ensure_provable
from kappa.replay.rollout.underway import Pace
from kappa.state.build import Birth
from kappa.state.build_status import SliceProgress, read_progress, read_stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.slices import Cuts, put_cuts
from kappa.state.store import Store
from kappa.state.witness import Witnesses
from kappa.tables.branch import base_frontier, begin_from

_LOOK_SECONDS = 0.2


@contextmanager
def folded_again(
    settings: Settings,
    store: Store,
    log: ProofLog,
    birth: Birth,
    cuts: Cuts,
    witnesses: Witnesses,
    on_progress: Callable[[str], None],
) -> Iterator[tuple[Store, Frontier]]:
    """Yields place and frontier of what the log gives again; both are deleted afterwards.

    `witnesses` are those at the last cut.
    """
    place = make_folder(store.local.path(settings.verify.temp), PROVE)
    try:
        anew = Store(place)
        put_cuts(anew, cuts)
        if birth.base is not None:
            begin_from(anew, birth, store, base_frontier(store, birth))
        code, last_line = _run(settings, anew, log.bootstrap_servers, birth, cuts, on_progress)
        stopped, reached = read_stopped(anew, birth.build), Frontiers(anew, birth.build).newest()
        # What was lost of the log meanwhile explains any other failure.
        ensure_provable(store, log, birth, cuts.ends[-1], witnesses)
        if stopped is not None:
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: {stopped.message}",
                hint=stopped.hint,
            )
        if code != 0 or reached is None or not reached.offsets.equals(cuts.ends[-1]):
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: "
                f"{last_line or f'the process ended with {code}'}",
                hint="kappa status shows whether all is well",
            )
        yield anew, reached
    finally:
        shutil.rmtree(place, ignore_errors=True)


def folding_text(done: int, total: int, rate: float | None, within: SliceProgress | None) -> str:
    """Returns how far the second fold is: records of all, rate, time left, and its slice. Pure."""
    if within is None and not done:
        return f"folding the log again: starting Spark, for {total:,} records"
    text = f"folding the log again: {done:,} of {total:,} records"
    if total:
        text += f" ({100 * done // total} %)"
    pace = pace_text(done, total, rate)
    text += f", {pace}" if pace else ""
    return text if within is None else f"{text}; {within.text}"


def _run(
    settings: Settings,
    anew: Store,
    bootstrap_servers: str,
    birth: Birth,
    cuts: Cuts,
    on_progress: Callable[[str], None],
) -> tuple[int, str]:
    """Runs the child to its end; returns its exit code and the last line of its log."""
    command = command_of(
        "kappa.engine.children.refold",
        *project_options(settings),
        *("--bootstrap", bootstrap_servers, "--build", birth.build, "--folder", str(anew.folder)),
    )
    frontiers, total = Frontiers(anew, birth.build), cuts.ends[-1].distance(birth.begins)
    log_file = anew.path("output.log")
    with log_file.open("wb") as output:
        # The live job keeps its freshness.
        child = start_tied(command, output=output, nice=LOW_PRIORITY)
    pace = Pace()
    try:
        while child.poll() is None:
            newest = frontiers.newest()
            folded = 0 if newest is None else newest.offsets.distance(birth.begins)
            within = read_progress(anew, birth.build, newest)
            done = folded + (0 if within is None else within.read)
            on_progress(folding_text(done, total, pace.rate(done, time.monotonic()), within))
            time.sleep(_LOOK_SECONDS)
    finally:
        ensure_session_gone(child.pid)
        child.wait()
    return child.returncode, (
        log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    )[-1]
