"""Compares the rows of two builds, and returns samples of differing rows. Results are cached.

Only one comparison runs at a time. A request that arrives during a comparison does not wait, and
gets no result. A comparison that takes longer than `serve.compare_seconds` is stopped, and the page
says that the comparison took too long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import KappaError
from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.verify.diff import Comparison, Part, RowSample, Sums
from kappa.replay.rollout.verify.pairs import compare_pair, pin_equal
from kappa.replay.status.outgoing_changes import is_part, part_of
from kappa.replay.status.status_cache import SharedLooks
from kappa.serving.http.page.formatting import is_number
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.reader import Limits
from kappa.serving.query.render import json_value
from kappa.state.build import Birth, read_birth
from kappa.state.journal.events import Difference
from kappa.state.store import Store

# Rows of each kind beside a rollout, and on the page of samples.
_SOME, _MOST = 5, 100
# The kinds of differing rows, in the order of a page.
_KINDS = ("changed", "added", "removed")
# How long whoever looks waits for a build that rests.
_TOGETHER_SECONDS = 10.0
_KEPT = 8
# Builds that go on are compared at their frontiers; a result stays true of these frontiers.
_FRESH_SECONDS = 60.0
_TROUBLE_SECONDS = 10.0
# A comparison that took too long will again: clients must not keep the machine busy.
_GIVEN_UP_SECONDS = 600.0
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class SampledRow:
    """A row that differs between two builds.

    A cell contains one value, or two values (before, after) if the value has changed. If a table
    has no keys, several rows may be equal; `times` is how many more of these equal rows one build
    has than the other build.
    """

    kind: str
    cells: tuple[tuple[Any, ...], ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class KindCount:
    """The number of differing rows of one kind: `shown` rows on the page, of `total` rows."""

    kind: str
    shown: int
    total: int


@dataclass(frozen=True, slots=True)
class SampledTable:
    """The sampled rows of a table: changed rows, then added rows, then removed rows.

    In `columns`, the `keys` come first, then the columns that have changed, and then the other
    columns. `changes` maps each changed column to the number of sampled rows in which it has
    changed. `counts` has an element for each kind of differing rows that occurs. `sums` maps a
    column of exact numbers to its sums (before, after) over all rows of the table.
    """

    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[SampledRow, ...]
    changes: Mapping[str, int]
    counts: tuple[KindCount, ...]
    sums: Mapping[str, Sums]

    @property
    def values(self) -> list[list[Any]]:
        """Returns the rows with one value per column: the values before, then those after."""
        return [[cell[place] for cell in row.cells] for place in (0, -1) for row in self.rows]

    @property
    def is_largest_first(self) -> bool:
        """Returns True if the rows in which a number differs most come first."""
        return bool(self.keys) and any(
            is_number(value)
            for row in self.rows
            for cell in row.cells[len(self.keys) :]
            for value in cell
        )

    @property
    def is_part(self) -> bool:
        """Returns True if the sample does not contain all rows that differ."""
        return any(each.shown < each.total for each in self.counts)


def samples_of(
    desk: SharedLooks, before: str, after: str, *, is_long: bool = False
) -> Comparison | None:
    """Compares two builds as `kappa diff` does, and returns the result with samples of rows.

    Returns None if another comparison is running. The result contains up to five sampled rows of
    each kind, or up to a hundred with `is_long`. Raises Conflict if the builds have no kept
    frontiers at equal offsets. Raises TooMuch if the comparison takes too long.
    """
    here = desk.here
    most = _MOST if is_long else _SOME
    key = here.store.url, before, after, most
    if (known := _cached_comparison(key)) is None:
        if not _lock.acquire(blocking=False):
            return None
        try:
            # Another request may have been quicker.
            known = _cached_comparison(key) or _cache_comparison(
                key, _compare_builds(desk, before, after, most)
            )
        finally:
            _lock.release()
    if isinstance(known, KappaError):
        raise known.with_traceback(None)
    return known


def outlet_parts(birth: Birth) -> tuple[Part, ...]:
    """Lists the parts of tables that the sinks and alerts of a build send."""
    outlets: tuple[SinkBirth | AlertBirth, ...] = (*birth.sinks, *birth.alerts)
    return tuple(dict.fromkeys(map(part_of, filter(is_part, outlets))))


def counted_parts(store: Store, rollout: Rollout) -> Mapping[Part, Difference]:
    """Returns the differences within parts of tables, as the last comparison has counted them.

    A part is left out if the comparison has found other numbers of rows for its whole table than
    the verification. The result is empty if the rollout is over, or if nothing was compared.
    """
    verified = rollout.verified
    if verified is None or verified.live_build is None or not rollout.active:
        return {}
    checked = {each.table: _moved_rows(each) for each in verified.differences}
    for most in (_SOME, _MOST):
        _, found = _known.get((store.url, verified.live_build, rollout.build, most), (0.0, None))
        if isinstance(found, Comparison):
            whole = {each.table: _moved_rows(each) for each in found.differences}
            return {
                part: each
                for part, each in found.parts.items()
                if whole[part[0]] == checked.get(part[0])
            }
    return {}


def _moved_rows(found: Difference) -> tuple[int, int, int]:
    return found.added, found.removed, found.changed


def sampled_tables(
    found: Comparison, keys: Mapping[str, tuple[str, ...]]
) -> tuple[SampledTable, ...]:
    """Returns the sampled rows of a comparison, table by table. Pure.

    `keys` maps each table to the names of its key columns.
    """
    differences = {each.table: each for each in found.differences}
    return tuple(
        _sampled_table(
            table, keys.get(table, ()), samples, differences[table], found.sums.get(table, {})
        )
        for table, samples in found.samples.items()
        if samples
    )


# The root, both builds, and the number of rows of each kind.
_Key = tuple[str, str, str, int]
_known: dict[_Key, tuple[float, Comparison | KappaError]] = {}


def _cached_comparison(key: _Key) -> Comparison | KappaError | None:
    at, known = _known.get(key, (0.0, None))
    return known if time.monotonic() - at < _true_seconds(known) else None


def _true_seconds(known: Comparison | KappaError | None) -> float:
    match known:
        case TooMuch():
            return _GIVEN_UP_SECONDS
        case KappaError():
            return _TROUBLE_SECONDS
        case _:
            return _FRESH_SECONDS


def _cache_comparison(key: _Key, found: Comparison | KappaError) -> Comparison | KappaError:
    while len(_known) >= _KEPT:
        _known.pop(next(iter(_known)))
    _known[key] = time.monotonic(), found
    return found


def _compare_builds(
    desk: SharedLooks, before: str, after: str, most: int
) -> Comparison | KappaError:
    here, seconds = desk.here, desk.here.settings.serve.compare_seconds
    try:
        with pin_equal(
            here.store,
            before,
            after,
            lease_seconds=here.lease_seconds,
            wait_seconds=_TOGETHER_SECONDS,
        ) as (pair, pinned):
            return compare_pair(
                here.store,
                pair,
                pinned,
                log=desk.log(),
                limits=Limits.of(here.settings.verify, here.store, seconds=seconds),
                samples=most,
                parts=outlet_parts(read_birth(here.store, after)),
            )
    except TooMuch:
        return TooMuch(
            f"builds {before} and {after} were compared for {seconds:g} s, which is as long as "
            "the page may (serve.compare_seconds), and no rows were found yet",
            hint=f"kappa diff {here.state().pipelines[after]} {before} {after} takes as long as "
            "it takes; what the verification has counted is true all the same",
        )
    except KappaError as error:
        return error


def _sampled_table(
    table: str,
    keys: tuple[str, ...],
    samples: tuple[RowSample, ...],
    found: Difference,
    sums: Mapping[str, Sums],
) -> SampledTable:
    ordered = sorted(samples, key=lambda each: _KINDS.index(each.kind))
    columns = tuple((samples[0].after or samples[0].before or {}).keys())
    rows = [{column: _sample_cell(each, column) for column in columns} for each in ordered]
    counted = {column: sum(len(row[column]) > 1 for row in rows) for column in columns}
    changes = {column: count for column, count in counted.items() if count}
    known = tuple(each for each in keys if each in columns)
    columns = tuple(dict.fromkeys((*known, *changes, *columns)))
    totals = {"changed": found.changed, "added": found.added, "removed": found.removed}
    return SampledTable(
        table,
        known,
        columns,
        tuple(
            SampledRow(each.kind, tuple(row[column] for column in columns), each.times)
            for each, row in zip(ordered, rows, strict=True)
        ),
        changes,
        tuple(
            KindCount(kind, sum(each.times for each in samples if each.kind == kind), totals[kind])
            for kind in _KINDS
            if totals[kind]
        ),
        sums,
    )


def _sample_cell(sample: RowSample, column: str) -> tuple[Any, ...]:
    before, after = sample.before or {}, sample.after or {}
    if sample.before is None or sample.after is None:
        return ((after or before)[column],)
    return (
        (after[column],)
        if json_value(before[column]) == json_value(after[column])
        else (before[column], after[column])
    )
