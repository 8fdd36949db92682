"""Compares a serving build's maintained views with their queries, after a deploy.

As a program (`python -m kappa.replay.rollout.verify.view_check --build B`), this module pins the
build's newest frontier, compares the views, and stores the result. `kappa status` shows the result,
but no decision uses it.
"""

from __future__ import annotations

import argparse
import sys

from kappa.base.clock import now
from kappa.base.errors import ExitCode
from kappa.base.log_lines import Level, write_log_line
from kappa.base.program import run_program
from kappa.base.settings import Settings, load_settings
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.verify.view_texts import compare_view_texts, unlike_text
from kappa.serving.query.pin.catalog import pin_build
from kappa.serving.query.query import connect_reader
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import read_birth
from kappa.state.build_status import ViewCheck, put_view_check
from kappa.state.store import Store, open_store


def check_views(settings: Settings, store: Store, build: str) -> ViewCheck | None:
    """Compares the rows of a serving build's maintained views with their queries.

    Stores and returns the result. Returns None if the build does not serve any more, because only
    the views of a serving build are updated at each frontier. Raises Conflict if the pinned
    frontier was deleted before the end.
    """
    if build not in current_state(store).serving.values():
        return None
    limits = Limits.of(settings.verify, store, seconds=settings.verify.timeout_seconds)
    with pin_build(store, build, lease_seconds=settings.rollout.lease_seconds) as pinned:
        birth = pinned.snapshot.births[build]
        tables = read_birth(store, birth.folded_by).tables
        with connect_reader(pinned.snapshot, store, limits=limits) as reader:
            checks = [
                *compare_view_texts(
                    reader, birth.pipeline, tables, most_rows=settings.views.check_rows
                )
            ]
        pinned.confirm_kept()
    unlike = tuple(unlike_text(each) for each in checks if not each.passed)
    found = ViewCheck(pinned.snapshot.frontiers[build].offsets, unlike, now())
    put_view_check(store, build, found)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Checks the views of the build that the command-line arguments name.

    Returns the exit code.
    """

    def work(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        found = check_views(settings, open_store(settings), given.build)
        for line in () if found is None else found.unlike:
            write_log_line(line, Level.WARN)
        return ExitCode.OK

    return run_program("kappa.replay.rollout.verify.view_check", work, arguments, build=str)


if __name__ == "__main__":
    sys.exit(main())
