"""Kappa's own step for sessions, over the columns of many keys at once.

A session is a run of consecutive rows of a key. A row begins a new run if its time is more than the
gap after the greatest time so far. The stored session of a key is processed as a row before the
key's rows. So each value of a session is one aggregation over the rows of the session's run. Sums
are added in the order of the log, so sums of doubles do not depend on the slices either.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.declare.folds.count import Count
from kappa.declare.folds.extremes import Max, Min
from kappa.declare.folds.first_latest import First
from kappa.declare.folds.fold import Fold
from kappa.declare.folds.sum import Sum
from kappa.declare.ordered_fold import LAST, SINCE, STATE, Sessions
from kappa.engine.fold.step_loop import MEND

Numbers = npt.NDArray[np.int64]
_TIME = pa.timestamp("us", tz="UTC")
# No time is so far after another time.
_LONGEST_MICROS = 1 << 62
# Doubles of 53 bits add up to no more than twice the exact sum.
_LARGE_SUM = 1 << 62
# The name of a run's number in an aggregation.
_RUN = "run"


class SessionStep:
    """Kappa's own step, which computes the sessions of a `sessions` declaration."""

    def __init__(self, declared: Sessions, keys: tuple[str, ...], emitted: tuple[str, ...]) -> None:
        """Stores the declaration, the table's keys, and the columns of the emitted table."""
        self._declared = declared
        self._gap = min(1000 * declared.gap_ms, _LONGEST_MICROS)
        self._keys = keys
        self._emitted = emitted

    @property
    def declared_at(self) -> tuple[Path, int]:
        """Returns the file and the line of the declaration."""
        return Path(self._declared.source.file), self._declared.source.line

    def __call__(self, states: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Returns the open session of each key after the rows, and the sessions that have ended.

        `states` contains the open session of each key before the rows. The second value contains
        the ended sessions, or is None if the declaration has no table for emitted rows.
        """
        rows = rows.filter(pc.is_valid(rows.column(self._declared.at)))
        has_session = pc.is_valid(states.column(SINCE)).to_numpy()
        runs = _Runs(
            np.r_[np.flatnonzero(has_session), rows.column(STATE).to_numpy()],
            np.r_[
                _micros(states.column(LAST).filter(pa.array(has_session))),
                _micros(rows.column(self._declared.at)),
            ],
            self._gap,
        )
        stored = states.filter(pa.array(has_session))
        sessions = {
            SINCE: _joined(stored.column(SINCE), rows.column(self._declared.at)).take(
                pa.array(runs.order[runs.first])
            ),
            LAST: pa.array(runs.latest[runs.last]).cast(_TIME),
        } | {
            name: self._folded(name, fold, stored, rows, runs)
            for name, fold in self._declared.fold.items()
        }
        found = pa.table(sessions)
        key_of = runs.key[runs.first]
        is_open = np.r_[key_of[1:] != key_of[:-1], True][: len(key_of)]
        places = np.full(states.num_rows, -1, np.int64)
        places[key_of[is_open]] = np.flatnonzero(is_open)
        after = found.take(pa.array(places, mask=places < 0))
        if not self._emitted:
            return after, None
        ended = np.flatnonzero(~is_open)
        keys = states.select(list(self._keys)).take(pa.array(key_of[ended]))
        emitted = found.take(pa.array(ended))
        columns = dict(zip(keys.column_names, keys.columns, strict=True)) | dict(
            zip(emitted.column_names, emitted.columns, strict=True)
        )
        return after, pa.table({name: columns[name] for name in self._emitted})

    def _folded(
        self, name: str, fold: Fold, stored: pa.Table, rows: pa.Table, runs: _Runs
    ) -> pa.Array:
        """Returns the value of a folded column for each session."""
        kept = stored.column(name)
        if isinstance(fold, Count):
            counted = (
                np.ones(rows.num_rows, np.int64)
                if fold.column is None
                else pc.is_valid(_one_spelling(rows.column(fold.column))).to_numpy()
            )
            counts = np.r_[kept.to_numpy(), counted].astype(np.int64)[runs.order]
            return pa.array(np.add.reduceat(counts, runs.first) if len(counts) else counts)
        given = _one_spelling(rows.column(str(fold.column)))
        values = _joined(kept, given.cast(kept.type)).take(pa.array(runs.order))
        if isinstance(fold, Sum):
            if pa.types.is_integer(kept.type):
                _ensure_sums_fit(name, pc.fill_null(values, 0).to_numpy(), runs)
            return runs.aggregated(values, "sum")
        if isinstance(fold, Min | Max):
            return runs.aggregated(values, fold.kind)
        return values.take(
            runs.picked(pc.is_valid(values).to_numpy(), is_first=isinstance(fold, First))
        )


def _ensure_sums_fit(name: str, values: Numbers, runs: _Runs) -> None:
    """Raises Broken if a sum of integers overflows its type after any row of a session.

    All rows are checked, since a slice may end after any row. Most runs have values so small that
    no sum can overflow; these runs are not checked row by row.
    """
    if not len(values):
        return
    sizes = np.add.reduceat(np.abs(values.astype(np.float64)), runs.first)
    for run in np.flatnonzero(sizes >= _LARGE_SUM):
        own = values[runs.first[run] : runs.last[run] + 1].tolist()
        if not all(-(1 << 63) <= total < 1 << 63 for total in accumulate(own)):
            raise Broken(f"the sum {name} of a session does not fit its type bigint", hint=MEND)


class _Runs:
    """The runs of rows, one per session: the order of the rows, and the bounds of each run."""

    def __init__(self, keys: Numbers, times: Numbers, gap: int) -> None:
        """Finds the runs of all keys.

        `keys` contains the index of each row's key, and `times` contains each row's time in
        microseconds. The rows of a key are in the order of the log, after the key's stored session.
        A time more than `gap` microseconds after the greatest time so far begins a new run.
        """
        self.order = np.argsort(keys, kind="stable")
        self.key = keys[self.order]
        times = times[self.order]
        is_other_key = np.r_[True, self.key[1:] != self.key[:-1]][: len(self.key)]
        # The greatest time so far in the key, for each row.
        self.latest = _greatest_so_far(self.key, times)
        begins = is_other_key
        begins[1:] |= times[1:] - self.latest[:-1] > gap
        self.first = np.flatnonzero(begins)
        self.last = np.r_[self.first[1:], len(times)][: len(self.first)] - 1
        self._number = np.cumsum(begins) - 1

    def aggregated(self, values: pa.ChunkedArray, how: str) -> pa.ChunkedArray:
        """Returns an aggregate of each run's values, in the order of the runs.

        `how` is the name of Arrow's aggregate function.
        """
        table = pa.table({_RUN: self._number, "value": values})
        return (
            table.group_by(_RUN, use_threads=False)
            .aggregate([("value", how)])
            .column(f"value_{how}")
        )

    def picked(self, is_there: npt.NDArray[np.bool_], *, is_first: bool) -> pa.Array:
        """Returns, for each run, the index of the first or last value for which `is_there` is True.

        The index is null if the run has no such value.
        """
        places = np.arange(len(is_there))
        if not len(places):
            return pa.array(places)
        if is_first:
            found = np.minimum.reduceat(np.where(is_there, places, len(places)), self.first)
        else:
            found = np.maximum.reduceat(np.where(is_there, places, -1), self.first)
        return pa.array(found, mask=(found < 0) | (found == len(places)))


def _greatest_so_far(keys: Numbers, times: Numbers) -> Numbers:
    """Returns the greatest time so far within each key. The keys must be sorted."""
    is_same_key = keys[1:] == keys[:-1]
    if not (is_same_key & (times[1:] < times[:-1])).any():
        return times
    # Ranks in place of times, so that the ranks of a later key are all above those of the keys
    # before, and the running maximum begins anew with each key.
    distinct, ranks = np.unique(times, return_inverse=True)
    running = np.maximum.accumulate(keys * len(distinct) + ranks)
    return distinct[running - keys * len(distinct)]


def _one_spelling(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the values, with NaN replaced by null and -0.0 by 0.0, as in all folds."""
    if not pa.types.is_floating(values.type):
        return values
    zero = pa.scalar(0, values.type)
    return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values), zero)


def _micros(times: pa.ChunkedArray) -> Numbers:
    micros: Numbers = times.cast(pa.int64()).to_numpy()
    return micros


def _joined(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)
