"""The verdict on a candidate: its checks, thresholds and rejects. Pure.

Thresholds are declared: how much of a table a candidate may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from kappa.declare.options import Thresholds
from kappa.replay.rollout.plan.readers import called_of
from kappa.state.journal.events import Difference, Verified
from kappa.state.table import TableBirth


def judged(
    seen: Verified,
    tables: Iterable[TableBirth],
    beyond: str = "",
    *,
    checked: Iterable[TableBirth] = (),
) -> Verified:
    """Returns what was found with its verdict.

    `tables` were compared, and `checked` are those with checks beside them.

    A check that fails, a threshold that is exceeded or too many rejects (`beyond`) beat what could
    not be measured, and that beats a pass.
    """
    tables = tuple(tables)
    called = {table.name: called_of(table) for table in (*checked, *tables)}
    failed = [
        *(
            f"{check.failing} of {check.rows} rows of {called[check.table]} do not satisfy: "
            f"{check.condition}"
            for check in seen.checks
            if check.failing
        ),
        *exceeded(seen.differences, tables),
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
        *unmeasured(seen.differences, tables),
    ]
    return replace(seen, verdict="inconclusive", reason="; ".join(untold)) if untold else seen


def exceeded(differences: Iterable[Difference], tables: Iterable[TableBirth]) -> tuple[str, ...]:
    """Returns a sentence for each threshold that a table's difference is beyond.

    A difference at its threshold is within it.
    """
    tables = tuple(tables)
    called = {table.name: called_of(table) for table in tables}
    return tuple(
        f"{_percent(difference.share(rows))} of the rows of {called[difference.table]} were "
        f"{what}, and {name} is {_percent(limit)}"
        for difference, thresholds in _declared(differences, tables)
        if difference.compared
        for name, what, limit, rows in _limits(difference, thresholds)
        if difference.share(rows) > limit
    )


def unmeasured(differences: Iterable[Difference], tables: Iterable[TableBirth]) -> tuple[str, ...]:
    """Returns a sentence for each table with thresholds that could not be compared.

    Both sides have the table, so nothing is known of its change.
    """
    tables = tuple(tables)
    called = {table.name: called_of(table) for table in tables}
    return tuple(
        f"{called[difference.table]} has thresholds and could not be compared: "
        f"{difference.incomparable}"
        for difference, thresholds in _declared(differences, tables)
        if difference.incomparable and thresholds != Thresholds()
    )


def _declared(
    differences: Iterable[Difference], tables: Iterable[TableBirth]
) -> Iterator[tuple[Difference, Thresholds]]:
    # What the candidate declares counts; a table that only the old build has is named in the plan.
    thresholds = {table.name: table.thresholds for table in tables}
    return (
        (difference, thresholds[difference.table])
        for difference in differences
        if difference.table in thresholds
    )


def _limits(
    difference: Difference, thresholds: Thresholds
) -> Iterator[tuple[str, str, float, int]]:
    measured = (
        ("max_added", "added", thresholds.max_added, difference.added),
        ("max_removed", "removed", thresholds.max_removed, difference.removed),
        ("max_changed", "changed", thresholds.max_changed, difference.changed),
    )
    return ((name, what, limit, rows) for name, what, limit, rows in measured if limit is not None)


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
