"""Verification: the declared checks of a candidate, run by DuckDB on exactly what one of its frontiers shows.

As a program (`python -m replay.verify --root ROOT --rollout N`) it verifies one rollout and appends the verdict; the
supervisor runs it in a process of its own, so that a check which takes all memory takes nobody else's. It changes
nothing but the journal. Alignment with the live build and the diff of rows are not part of it yet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from kappa.build import Birth
from kappa.errors import ExitCode, KappaError, UsageError
from kappa.journal import Check, Failed, Journal, Verified
from kappa.store import Store
from replay.rollout import Phase, Rollout, fold
from serving.catalog import pin_build
from serving.query import Reader, connect


def verify(store: Store, rollout: Rollout, *, lease_seconds: float) -> Verified:
    """The verdict on a candidate at its newest frontier, which is kept pinned meanwhile.

    Raises Conflict where the lease did not hold until the end.
    """
    with pin_build(store, rollout.build, lease_seconds=lease_seconds) as pinned:
        snapshot = pinned.snapshot
        offsets = snapshot.frontiers[rollout.build].offsets
        try:
            with connect(snapshot, store) as reader:
                checks = tuple(_run_checks(reader, snapshot.births[rollout.build]))
        except UsageError as error:
            # A view of the pipeline that its own tables do not bear: readers would see that error.
            return Verified(rollout.number, "inconclusive", offsets, reason=error.message)
        pinned.confirm()
    failed = next((check for check in checks if check.failing), None)
    if failed is not None:
        return Verified(rollout.number, "failed", offsets, checks, f"{failed.failing} of {failed.rows} rows of table {failed.table} do not satisfy: {failed.condition}")
    not_run = next((check for check in checks if check.failing is None), None)
    if not_run is not None:
        return Verified(rollout.number, "inconclusive", offsets, checks, f"a check of table {not_run.table} could not be run: {not_run.condition}: {not_run.error}")
    return Verified(rollout.number, "passed", offsets, checks)


def _run_checks(reader: Reader, birth: Birth) -> Iterable[Check]:
    for table in birth.tables:
        for condition in table.checks:
            # On a line of its own, so that a comment at its end comments out nothing of ours. Null counts as false.
            sql = f'select count(*), count(*) filter (where holds is not true) from (select (\n{condition}\n) as holds from main."{table.name}")'
            try:
                rows, failing = reader.rows(sql).rows[0]
            except KappaError as error:
                yield Check(table.name, condition, 0, None, error.message)
            else:
                yield Check(table.name, condition, int(rows), int(failing))


def ensure_verified(store: Store, number: int, *, lease_seconds: float) -> None:
    """Verifies a rollout and appends the verdict, unless it has one or has ended meanwhile."""
    journal = Journal(store)
    verdict: Verified | Failed | None = None
    while True:
        state = fold(journal.after(0))
        rollout = state.rollout(number)
        if rollout.phase is not Phase.VERIFYING:
            return
        if verdict is None:
            try:
                verdict = verify(store, rollout, lease_seconds=lease_seconds)
            except KappaError as error:
                verdict = Failed(number, f"build {rollout.build} could not be verified: {error.message}", error.hint)
        # Refused where anything was appended meanwhile: then it may be that nobody waits for this verdict any more.
        if journal.append(state.last + 1, verdict) is not None:
            return


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="replay.verify", description="verifies the candidate of one rollout and appends the verdict")
    parser.add_argument("--root", required=True)
    parser.add_argument("--rollout", type=int, required=True)
    parser.add_argument("--lease-seconds", type=float, required=True)
    given = parser.parse_args(arguments)
    ensure_verified(Store(given.root), given.rollout, lease_seconds=given.lease_seconds)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
