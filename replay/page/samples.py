"""Samples of the rows in which two builds differ, from one comparison at a time, kept a while.

A client that arrives during a comparison does not wait. A comparison that takes longer than
`serve.compare_seconds` is ended, and the page shows the timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import KappaError
from kappa.replay.rollout.verify.diff import Comparison, RowSample
from kappa.replay.rollout.verify.pairs import compare_pair, pin_equal
from kappa.replay.status.shared_looks import SharedLooks
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.reader import Limits
from kappa.serving.query.render import json_value

_SAMPLES = 5
# So many columns are seen at once.
_NARROW_COLUMNS = 8
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
class SampledRows:
    """Sampled rows of a kind; a cell is the value, or (before, after) of a changed value.

    `changes` counts the rows in which a column has changed. Of many columns, the columns that have
    changed stand behind the first column.
    """

    table: str
    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], ...], ...]
    changes: Mapping[str, int]


def samples_of(desk: SharedLooks, before: str, after: str) -> Comparison | None:
    """Compares two builds with samples, as `kappa diff` does; returns None during a comparison.

    Raises Conflict if the builds have no equal offsets that are kept, and TooMuch if the
    comparison takes too long.
    """
    here = desk.here
    key = here.store.url, before, after
    if (known := _cached_comparison(key)) is None:
        if not _lock.acquire(blocking=False):
            return None
        try:
            # Another request may have been quicker.
            known = _cached_comparison(key) or _cache_comparison(
                key, _compare_builds(desk, before, after)
            )
        finally:
            _lock.release()
    if isinstance(known, KappaError):
        raise known.with_traceback(None)
    return known


def sampled_rows(found: Comparison) -> tuple[SampledRows, ...]:
    """Lists the samples of a comparison by table and kind, changed rows first."""
    return tuple(
        _sampled_kind(table, kind, shown)
        for table, samples in found.samples.items()
        for kind in ("changed", "added", "removed")
        if (shown := [s for s in samples if s.kind == kind])
    )


_known: dict[tuple[str, str, str], tuple[float, Comparison | KappaError]] = {}


def _cached_comparison(key: tuple[str, str, str]) -> Comparison | KappaError | None:
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


def _cache_comparison(
    key: tuple[str, str, str], found: Comparison | KappaError
) -> Comparison | KappaError:
    while len(_known) >= _KEPT:
        _known.pop(next(iter(_known)))
    _known[key] = time.monotonic(), found
    return found


def _compare_builds(desk: SharedLooks, before: str, after: str) -> Comparison | KappaError:
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
                samples=_SAMPLES,
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


def _sampled_kind(table: str, kind: str, samples: list[RowSample]) -> SampledRows:
    columns = tuple((samples[0].after or samples[0].before or {}).keys())
    rows = [{column: _sample_cell(sample, column) for column in columns} for sample in samples]
    counted = {column: sum(len(row[column]) > 1 for row in rows) for column in columns}
    changes = {column: count for column, count in counted.items() if count}
    if len(columns) > _NARROW_COLUMNS:
        columns = tuple(dict.fromkeys((columns[0], *changes, *columns)))
    return SampledRows(
        table,
        kind,
        columns,
        tuple(tuple(row[column] for column in columns) for row in rows),
        changes,
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
