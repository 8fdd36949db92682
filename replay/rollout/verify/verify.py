"""Verification: a candidate's declared checks, and a comparison with the live build.

If a build already serves, both builds are examined at the candidate's newest alignment with the
live build, and the thresholds of the tables decide whether the differences are allowed. The first
build of a pipeline is checked at its newest frontier. As a program (`python -m
kappa.replay.rollout.verify.verify --rollout N ...`), this module verifies one rollout and appends
the verdict. The supervisor runs the program in a separate process, so that memory and time are
limited. A verification changes only the journal. A candidate passes only if a verification ends
with the verdict "passed".
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from msgspec.structs import replace

from kappa.base.errors import Conflict, ExitCode, KappaError, Unreachable, UsageError
from kappa.base.program import run_program
from kappa.base.settings import load_settings
from kappa.base.units import count_of
from kappa.declare.options import Thresholds
from kappa.declare.reject_limit import beyond_text, fails_on_more, is_beyond, rejected_of
from kappa.declare.values.reason import Reason
from kappa.engine.job.reject_counts import RejectCounts
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.kafka.stored_schemas import open_registry
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.plan.schema_changes import table_in_words
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.verify.pairs import aligned_pair, compare_pair
from kappa.replay.rollout.verify.view_texts import compare_view_texts
from kappa.serving.query.pin.catalog import pin_build, pin_pair
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.query import connect_reader
from kappa.serving.query.reader.reader import Limits, Reader
from kappa.serving.query.reader.table_sql import check_sql, failing_rows_sql
from kappa.serving.query.reader.views import view_refusals
from kappa.serving.query.render import cell_text
from kappa.state.build import Birth, read_birth
from kappa.state.build_status import comparable_now, putting_progress, table_step
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Check, Difference, Failed, Verified
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store, open_store
from kappa.state.table import TableBirth

# The rows of a failed check that a verdict keeps. Records of the journal must stay small.
_SAMPLED_ROWS = 5
_SAMPLED_COLUMNS = 12
_SAMPLED_CHARACTERS = 100
_SAMPLED_CHECKS = 10


@dataclass(frozen=True, slots=True)
class VerificationMeans:
    """The resources and limits of a verification.

    `lease_seconds` is the duration of the lease on the compared frontiers. `limits` limits the
    queries of the verification. `log` is None if there is no broker. If a maintained view reads
    tables with more than `check_rows` rows in total, only a sample of the view is compared with its
    query.
    """

    lease_seconds: float
    limits: Limits | None = None
    log: Log | None = None
    check_rows: int = 10_000_000


def verify_candidate(
    store: Store, rollout: Rollout, live: str | None, means: VerificationMeans
) -> Verified:
    """Checks a candidate, compares it with the live build, and returns the verdict.

    `live` is the build that serves, or None. A candidate that serves the live build's own tables is
    not compared, because the rows are the same. The compared frontiers are pinned during the
    comparison. Raises Conflict if the pinned frontiers were deleted before the end, and Unreachable
    if the broker is needed and does not answer.
    """
    birth = read_birth(store, rollout.build)
    before = None if live is None else read_birth(store, live)
    shared = before is not None and before.folded_by == birth.folded_by
    # A live build that reads none of the same topics (they were made anew, or lost
    # their ends) cannot be compared.
    if live is None or before is None or shared or not comparable_now(store, birth, before):
        with pin_build(store, rollout.build, lease_seconds=means.lease_seconds) as pinned:
            checked = _checked_candidate(store, pinned, rollout, means)
            beyond = _excess_of_rejects(
                store, pinned.snapshot, rollout.build, None, is_shared=shared
            )
            pinned.confirm_kept()
        incomparable = () if live is None or shared else tuple(sorted(birth.topic_ids))
        # An overlay has no tables of its own.
        tables = read_birth(store, birth.folded_by).tables
        alone = replace(checked, live_build=live, incomparable_topics=incomparable)
        return judge_results(alone, (), beyond, checked=tables)
    pair = aligned_pair(store, live, rollout.build)
    if pair is None:
        return _never_compared(
            store,
            rollout,
            live,
            f"build {rollout.build} was not aligned with build {live}, which serves",
        )
    with ExitStack() as kept:
        try:
            pinned = kept.enter_context(
                pin_pair(
                    store,
                    pair.before,
                    pair.after,
                    alignment_lease=pair.lease,
                    lease_seconds=means.lease_seconds,
                )
            )
        except Conflict as error:
            return _never_compared(store, rollout, live, error.message)
        checked = _checked_candidate(store, pinned, rollout, means)
        # `pair.before` is the build that folds the tables, if an overlay serves.
        beyond = _excess_of_rejects(store, pinned.snapshot, rollout.build, pair.before.build)
        try:
            found = compare_pair(
                store,
                pair,
                pinned,
                log=means.log,
                limits=means.limits,
                on_progress=putting_progress(store, rollout.build),
            )
        except Unreachable:
            # Nothing is known of the rows; once the broker is back, the next process compares them.
            raise
        except KappaError as error:
            return replace(
                checked,
                verdict="inconclusive",
                reason=f"it could not be compared with build {live}: {error.message}",
                live_build=live,
            )
    seen = replace(
        checked,
        live_build=live,
        differences=found.differences,
        counts=found.counts,
        incomparable_topics=found.incomparable_topics,
    )
    return judge_results(seen, pinned.snapshot.births[rollout.build].tables, beyond)


def _checked_candidate(
    store: Store, pinned: PinnedSnapshot, rollout: Rollout, means: VerificationMeans
) -> Verified:
    """Runs the checks of a candidate, and returns their results.

    The verdict in the result is provisional: "passed", whether checks passed or failed. But if a
    view is refused, no check can be run, and the verdict is "inconclusive".
    """
    snapshot = pinned.snapshot
    frontier = snapshot.frontiers[rollout.build]
    rejected, records = rejected_of(frontier.tally)
    try:
        _refuse_views(snapshot.births[rollout.build])
        with connect_reader(snapshot, store, limits=means.limits) as reader:
            return Verified(
                rollout.id,
                "passed",
                frontier.offsets,
                tuple(
                    _run_checks(
                        reader,
                        snapshot.births[rollout.build],
                        means.check_rows,
                        putting_progress(store, rollout.build),
                    )
                ),
                rejected=rejected,
                records=records,
            )
    except UsageError as error:
        # The pipeline's own tables do not allow a view: readers would get that error.
        return Verified(
            rollout.id,
            "inconclusive",
            frontier.offsets,
            reason=error.message,
            rejected=rejected,
            records=records,
        )


def _refuse_views(birth: Birth) -> None:
    """Raises UsageError if the result of a view depends on more than the build's own tables.

    For example, the view reads a file, or calls a nondeterministic function.
    """
    for view, refusal in view_refusals(birth.tables, birth.views).items():
        raise UsageError(f"view {view} cannot be served: {refusal.message}", hint=refusal.hint)


def _excess_of_rejects(
    store: Store, snapshot: Snapshot, build: str, live: str | None, *, is_shared: bool = False
) -> str:
    """Returns a sentence if the build has rejected more records than allowed, otherwise "".

    The pipeline's `max_rejects` is the limit. If it is not declared, the candidate's function may
    fail on no more records than the function of the `live` build. This second limit does not apply
    with `is_shared`, because the candidate then serves the live build's tables, which were verified
    before.
    """
    birth, frontier = snapshot.births[build], snapshot.frontiers[build]
    counted = rejected_of(frontier.tally)
    if is_beyond(birth.max_rejects, *counted):
        return (
            f"it {beyond_text(birth.max_rejects, *counted)}: "
            f"{RejectCounts.of(store, birth, frontier).text}"
        )
    if is_shared or birth.max_rejects is not None:
        return ""
    found, before = (
        RejectCounts({}, "")
        if each is None
        else RejectCounts.of(store, snapshot.births[each], snapshot.frontiers[each])
        for each in (build, live)
    )
    now, then = (
        sum(each.reasons.get(why, 0) for why in (Reason.FUNCTION_FAILED, Reason.WAKE_FAILED))
        for each in (found, before)
    )
    why = fails_on_more(now, then, counted[1])
    return f"{why}: {found.text}" if why else ""


def _never_compared(store: Store, rollout: Rollout, live: str | None, reason: str) -> Verified:
    newest = Frontiers(store, rollout.build).newest()
    return Verified(
        rollout.id,
        "inconclusive",
        Offsets() if newest is None else newest.offsets,
        reason=reason,
        live_build=live,
    )


def _run_checks(
    reader: Reader, birth: Birth, check_rows: int, on_progress: Callable[[str], None]
) -> Iterable[Check]:
    sampled = 0
    for number, table in enumerate(birth.tables, start=1):
        on_progress(table_step("checking", table.name, number, len(birth.tables)))
        for condition in table.checks:
            try:
                rows, failing = reader.rows(check_sql(table.name, condition)).rows[0]
            except KappaError as error:
                yield Check(table.name, condition, 0, None, error.message)
            else:
                found = Check(table.name, condition, int(rows), int(failing))
                if found.failing and sampled < _SAMPLED_CHECKS:
                    sampled += 1
                    found = _with_samples(reader, table, found)
                yield found
    yield from compare_view_texts(
        reader, birth.pipeline, birth.tables, most_rows=check_rows, on_progress=on_progress
    )


def _with_samples(reader: Reader, table: TableBirth, failed: Check) -> Check:
    """Returns a failed check with a few of the failing rows, in the order of the table's keys.

    If these rows cannot be read, returns the check without rows: the counts are true all the same.
    """
    columns = sampled_columns(table, failed.condition)
    keys = [each for each in table.keys if each in columns]
    sql = failing_rows_sql(table.name, failed.condition, columns, keys, _SAMPLED_ROWS)
    try:
        found = reader.rows(sql).rows
    except KappaError:
        return failed
    samples = tuple(tuple(map(_sample_text, row)) for row in found)
    return replace(failed, columns=columns, samples=samples)


def sampled_columns(table: TableBirth, condition: str) -> tuple[str, ...]:
    """Returns the columns that samples of failing rows contain, at most twelve. Pure.

    The keys come first, then the columns that the condition names, and then other served columns.
    """
    served = [name for name, _ in table.served]
    words = {*re.findall(r"\w+", condition.casefold())}
    keys = (each for each in table.keys if each in served)
    named = (each for each in served if each.casefold() in words)
    return tuple(dict.fromkeys((*keys, *named, *served)))[:_SAMPLED_COLUMNS]


def _sample_text(value: object) -> str | None:
    if value is None:
        return None
    text = cell_text(value)
    return text if len(text) <= _SAMPLED_CHARACTERS else f"{text[: _SAMPLED_CHARACTERS - 1]}…"


def verify_and_append_verdict(store: Store, id_: int, means: VerificationMeans) -> None:
    """Verifies a rollout, and appends the verdict to the journal.

    Does nothing if the rollout does not wait for a verdict any more. Raises Unreachable if the
    broker does not answer.
    """
    _ensure_verdict(store, id_, lambda rollout, live: verify_candidate(store, rollout, live, means))


def append_inconclusive(store: Store, id_: int, reason: str) -> None:
    """Appends an inconclusive verdict, unless the rollout no longer waits for a verdict."""
    _ensure_verdict(store, id_, lambda rollout, live: _never_compared(store, rollout, live, reason))


def _ensure_verdict(
    store: Store, id_: int, judge: Callable[[Rollout, str | None], Verified]
) -> None:
    journal = Journal(store)
    verdict: Verified | Failed | None = None
    while True:
        state = current_state(store)
        rollout = state.rollout(id_)
        if rollout.phase is not Phase.VERIFYING:
            return
        if verdict is None:
            try:
                verdict = judge(rollout, state.serving.get(rollout.pipeline))
            except Unreachable:
                raise
            except KappaError as error:
                verdict = Failed(
                    id_,
                    f"build {rollout.build} could not be verified: {error.message}",
                    error.hint,
                )
        # Refused if anything was appended meanwhile: perhaps nobody awaits the verdict any more.
        if journal.append(state.last + 1, verdict) is not None:
            return


def _end_at(seconds: float, store: Store, id_: int) -> None:
    """Starts a timer that ends this verification as inconclusive after `seconds`.

    The timer appends the verdict and exits the process. The timer is a daemon thread, so the
    process can exit earlier if its work is done.
    """

    def end() -> None:
        try:
            append_inconclusive(
                store,
                id_,
                f"the verification did not end within {seconds:g} s (verify.timeout_seconds)",
            )
        finally:
            # After an ordinary exit DuckDB's threads would continue.
            os._exit(ExitCode.OK)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main(arguments: list[str] | None = None) -> int:
    """Verifies the rollout that the command-line arguments name, and returns the exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        store = open_store(settings)
        _end_at(settings.verify.timeout_seconds, store, given.rollout)
        # A schema registry may frame the keys.
        open_registry(settings, store)
        log = Log(given.bootstrap, client_options(settings))
        verify_and_append_verdict(
            store,
            given.rollout,
            VerificationMeans(
                settings.rollout.lease_seconds,
                Limits.of(settings.verify, store),
                log,
                settings.views.check_rows,
            ),
        )
        return ExitCode.OK

    return run_program(
        "kappa.replay.rollout.verify.verify", work, arguments, bootstrap=str, rollout=int
    )


def judge_results(
    seen: Verified,
    tables: Iterable[TableBirth],
    beyond: str = "",
    *,
    checked: Iterable[TableBirth] = (),
) -> Verified:
    """Returns the results of a verification with the final verdict.

    `tables` are the compared tables, and `checked` are further tables with checks. `beyond`
    describes an excess of rejects, or is "". The verdict is "failed" if a check failed, a threshold
    was exceeded or there is an excess of rejects. Otherwise, the verdict is "inconclusive" if
    anything could not be measured, and "passed" if not.
    """
    tables = tuple(tables)
    called = {table.name: table_in_words(table) for table in (*checked, *tables)}
    failed = [
        *(
            f"{check.failing} of {count_of(check.rows, 'row')} of {called[check.table]} do not "
            f"satisfy: {check.condition}"
            for check in seen.checks
            if check.failing
        ),
        *exceeded_thresholds(seen.differences, tables),
        *([beyond] if beyond else []),
    ]
    if failed:
        return replace(seen, verdict="failed", reason="; ".join(failed))
    untold = [
        *([seen.reason] if seen.reason else []),
        *(
            f"a check of {called[check.table]} could not be run: {check.condition}: {check.error}"
            for check in seen.checks
            if check.failing is None
        ),
        *unmeasured_tables(seen.differences, tables),
    ]
    return replace(seen, verdict="inconclusive", reason="; ".join(untold)) if untold else seen


def exceeded_thresholds(
    differences: Iterable[Difference], tables: Iterable[TableBirth]
) -> tuple[str, ...]:
    """Returns a sentence for each threshold that the difference of a table exceeds.

    A difference that is equal to a threshold does not exceed it.
    """
    tables = tuple(tables)
    called = {table.name: table_in_words(table) for table in tables}
    return tuple(
        f"{_percent_text(difference.share(rows))} of the rows of {called[difference.table]} were "
        f"{what}, and {name} is {_percent_text(limit)}"
        for difference, thresholds in _declared_thresholds(differences, tables)
        if difference.compared
        for name, what, limit, rows in _threshold_limits(difference, thresholds)
        if difference.share(rows) > limit
    )


def unmeasured_tables(
    differences: Iterable[Difference], tables: Iterable[TableBirth]
) -> tuple[str, ...]:
    """Returns a sentence for each table that has thresholds but could not be compared."""
    tables = tuple(tables)
    called = {table.name: table_in_words(table) for table in tables}
    return tuple(
        f"{called[difference.table]} has thresholds and could not be compared: "
        f"{difference.incomparable}"
        for difference, thresholds in _declared_thresholds(differences, tables)
        if difference.incomparable and thresholds != Thresholds()
    )


def _declared_thresholds(
    differences: Iterable[Difference], tables: Iterable[TableBirth]
) -> Iterator[tuple[Difference, Thresholds]]:
    # The candidate's declaration counts; the plan names a table that only the old build has.
    thresholds = {table.name: table.thresholds for table in tables}
    return (
        (difference, thresholds[difference.table])
        for difference in differences
        if difference.table in thresholds
    )


def _threshold_limits(
    difference: Difference, thresholds: Thresholds
) -> Iterator[tuple[str, str, float, int]]:
    measured = (
        ("max_added", "added", thresholds.max_added, difference.added),
        ("max_removed", "removed", thresholds.max_removed, difference.removed),
        ("max_changed", "changed", thresholds.max_changed, difference.changed),
    )
    return ((name, what, limit, rows) for name, what, limit, rows in measured if limit is not None)


def _percent_text(share: float) -> str:
    return f"{100 * share:.4g} %"


if __name__ == "__main__":
    sys.exit(main())
