"""The job process, which folds the log into a build's tables.

    python -m kappa.engine.job.job --project DIR --root ROOT --bootstrap HOST:PORT --build BUILD
        --leg base|catch-up|alignment|tail --nice NICE

The exit code is 0 if the job was asked to stop (SIGTERM), or if the job reached the end of a
catch-up or of a branch's base. The code of the build with which the branch begins folds the base.
After an `alignment`, the same process continues with the tail. After a short catch-up, the same
process also continues with the tail, since the catch-up takes less time than starting another JVM
and other Spark workers. A longer catch-up runs with the niceness NICE (0 to 19), so that other
processes come first.

Any other end of the process is an error, which is printed to stderr. If a restart would not help
(for example because the user made a mistake or the log was changed), the error is also written to
the build's `stopped.json`. After any other error the supervisor starts the job again.

This module has few imports, so that the program starts soon. The program reads arguments and
settings, takes the build's lock and estimates how many offsets it must fold. Then it starts Spark's
JVM, which takes two seconds to boot. Meanwhile the program imports the module that does the work:
engine/job/job_run.py.
"""

from __future__ import annotations

import argparse
import os
import threading
from contextlib import ExitStack

from kappa.base.errors import Broken, ExitCode, KappaError, UsageError
from kappa.base.process import lower_priority, name_process, set_by_sigterm
from kappa.base.program import run_program
from kappa.base.settings import Settings, load_settings
from kappa.engine.job.legs import LegKind
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.leg_session import LegSession
from kappa.engine.spark.session import end_process
from kappa.kafka.client_options import client_options
from kappa.kafka.stored_schemas import open_registry
from kappa.state.build import folder_of_build, read_birth
from kappa.state.build_status import Beat, put_stopped
from kappa.state.files.bucket import FOLDING, with_patience
from kappa.state.root import lock_of
from kappa.state.store import Store, open_store


def run(
    settings: Settings,
    bootstrap_servers: str,
    build: str,
    kind: LegKind,
    stop: threading.Event,
    *,
    nice: int = 0,
) -> None:
    """Runs a leg of a build under the build's lock.

    If `stop` is set, the leg ends after the current slice. A leg that may take long runs with the
    niceness `nice`. Raises Conflict if another process holds the lock. If Broken or UsageError is
    raised, the error is first recorded as the reason why the build has stopped.
    """
    store = open_store(settings)
    open_registry(settings, store)
    with (
        with_patience(FOLDING),
        lock_of(store, f"{folder_of_build(build)}/lock", what=f"build {build}"),
        Beat(store, build),
        ExitStack() as ending,
    ):
        try:
            profile, offsets = Profile.TAIL, 0
            if kind in {LegKind.BASE, LegKind.CATCH_UP}:
                offsets = _left_to_fold(store, settings, bootstrap_servers, build, kind)
                short = settings.engine.short_records
                if kind is LegKind.CATCH_UP and offsets <= max(short, settings.engine.tail_records):
                    name_process(
                        lambda name: name.replace(f"--leg {kind}", f"--leg {LegKind.TAIL}")
                    )
                    kind = LegKind.TAIL
                else:
                    lower_priority(nice, (os.getpid(),))
                    if offsets > short:
                        profile = Profile.of_catch_up(offsets)
            session = ending.enter_context(
                LegSession(
                    settings, build, profile, store.local.path(f"{folder_of_build(build)}/spark")
                )
            )
            if kind is not LegKind.BASE or offsets:
                session.begin()
            from kappa.engine.job.job_run import Legwork  # noqa: PLC0415  # see above

            Legwork(store, settings, bootstrap_servers, build, session, stop, nice=nice).run(kind)
        except (Broken, UsageError) as error:
            # Before the session ends, which may take its time.
            put_stopped(store, build, error)
            raise


def _left_to_fold(
    store: Store, settings: Settings, bootstrap_servers: str, build: str, kind: LegKind
) -> int:
    """Estimates the number of offsets that a bounded leg must fold.

    The estimate needs no tables and no Spark session. Returns 0 if the ends of the topics cannot be
    read; the leg itself then reports the error.
    """
    # A tail, whose session begins at once, does not wait for these imports.
    from kappa.kafka.client import Log  # noqa: PLC0415
    from kappa.state.frontier import Frontiers  # noqa: PLC0415

    birth, newest = read_birth(store, build), Frontiers(store, build).newest()
    done = birth.origin_offsets if newest is None else newest.offsets
    if kind is LegKind.BASE:
        return birth.begins.distance(done)
    try:
        return (
            Log(bootstrap_servers, client_options(settings))
            .end([topic.name for topic in birth.topics])
            .distance(done)
        )
    except KappaError:
        # The work itself reports the error.
        return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs a job as the command-line `arguments` say, and returns the exit code."""
    stop = set_by_sigterm()

    def work(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        # A secret that is missing now may be there at the next start: its absence stops no job for
        # good.
        client_options(settings)
        run(settings, given.bootstrap, given.build, given.leg, stop, nice=given.nice)
        return ExitCode.OK

    return run_program(
        "kappa.engine.job.job", work, arguments, bootstrap=str, build=str, leg=LegKind, nice=int
    )


if __name__ == "__main__":
    end_process(main())
