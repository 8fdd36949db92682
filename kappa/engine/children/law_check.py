"""A test of the law of slices on a log: however the log is cut, the tables have the same rows.

By this law, a replay in large slices computes the same tables as a tail in small slices. Users test
their pipelines against the law in their own tests (kappa/testing.py). A deploy tests the law on a
sample of the log before a version is replayed (law_program.py).
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.base.units import count_of
from kappa.declare.folds.exactness import Exactness
from kappa.declare.options import DELETED, REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal, unlike_queries
from kappa.state.log_clock import log_clock
from kappa.state.offsets import Offsets
from kappa.state.slices import random_ends
from kappa.state.table import TableBirth
from kappa.tables.views.exact_rows import python_rows
from kappa.tables.views.served_rows_sql import least_kept
from kappa.tables.views.view_tables import build_tables

_SHOWN = 5
_OF_VIEWS = (
    "a view's rows may depend on the rows of its tables alone: no clock, no chance, no order that"
    " the query does not name"
)
_ALL_AT_SPARK = 0
_ALL_HERE = 1_000_000
# A table's rows: by key if the table has keys, else the number of times each row occurs.
FoldedRows = Mapping[tuple[Any, ...], Any]

# A longer value is cut in an error.
_LONGEST = 200


class LawBroken(Broken):
    """An error: the rows of a pipeline depend on how the log is cut into slices.

    `ends` contains the ends of the slices of the smallest cut for which the rows differ.
    """

    def __init__(self, message: str, *, hint: str, ends: Sequence[Offsets]) -> None:
        super().__init__(message, hint=hint)
        self.ends = tuple(ends)


class OutOfTime(Exception):
    """A signal that the time for a test has ended."""


@dataclass(frozen=True, slots=True)
class LawTrials:
    """The result of a test of the law of slices that has found no difference.

    A slicing is a way to cut the log into slices. `tried` is the number of tested slicings, and
    `of` the number of planned slicings. `rejected` contains the number of the pipeline's rejects by
    reason. `fills_all` is True if each table of the pipeline's function has a row.
    """

    tried: int
    of: int
    rejected: Counter[str]
    fills_all: bool


@dataclass(frozen=True, slots=True)
class _Slicing:
    """A way to cut the log into slices.

    If `again` is True, some slices are folded a second time, as after a crash.
    """

    ends: Sequence[Offsets]
    driver_rows: int = _ALL_HERE
    again: random.Random | None = None


def hold_to_law(
    local: LocalPipeline,
    log: MemoryLog,
    *,
    cuts: int,
    most_slices: int,
    by_spark: bool = True,
    seed: int = 0,
    say: Callable[[str], None] = lambda _line: None,
    is_over: Callable[[], bool] = lambda: False,
) -> LawTrials:
    """Tests the law of slices on a pipeline and a log, and returns what was tested.

    A slicing is a way to cut the log into slices. The first slicings have a single slice for all
    events, and a slice per event (at most `most_slices` slices). Then follow `cuts` random
    slicings, with empty slices and with slices that are folded again. If `by_spark` is True, a last
    slicing is computed in the same way as large slices. `say` is called with a line of progress
    before each slicing. When `is_over` returns True, no further slice is folded, and the current
    slicing is not counted.

    Raises LawBroken if the rows after a slicing differ from the rows after a single slice. The
    error contains the slices of the smallest slicing that was found for which the rows differ, and
    the rows that differ.
    """
    of, tried = 2 + cuts + by_spark, 0
    with tempfile.TemporaryDirectory(prefix="kappa-law-") as scratch:
        trial = _Trial(Path(scratch), local, log, is_over)
        say("in one slice")
        whole = trial.tables(_Slicing([log.end]))
        try:
            for slicing in _slicings(log, cuts, most_slices, seed, by_spark=by_spark):
                slices = count_of(len(slicing.ends), "slice")
                say(f"in {slices}, way {tried + 1} of {of} to cut the records")
                trial.hold(whole, slicing)
                tried += 1
        except OutOfTime:
            pass
    fills_all = all(whole[table.name] for table in local.pipeline.function_tables)
    return LawTrials(tried, of, _rejected(whole), fills_all)


def hold_views_to_law(
    local: LocalPipeline, log: MemoryLog, *, cuts: int, most_slices: int, seed: int = 0
) -> None:
    """Tests that maintained views have the rows of their queries, however the log is cut.

    After each slice of each slicing, the stored rows of a view are compared with the result of the
    view's query. `cuts` is the number of random slicings; no slicing has more than `most_slices`
    slices. Raises LawBroken if rows differ. The error contains the slices of the smallest slicing
    that was found for which rows differ, and the rows that differ after the last slice.
    """
    with tempfile.TemporaryDirectory(prefix="kappa-law-") as scratch:
        trial = _Trial(Path(scratch), local, log, lambda: False)
        for slicing in _slicings(log, cuts, most_slices, seed, by_spark=False):
            found, reached = trial.unlike_queries(slicing.ends)
            if found:
                smallest, found = _smallest(
                    list(slicing.ends[:reached]), found, lambda ends: trial.unlike_queries(ends)[0]
                )
                raise LawBroken(
                    _views_text(local.pipeline, smallest, found),
                    hint=_OF_VIEWS,
                    ends=smallest,
                )


def _views_text(pipeline: Pipeline, ends: Sequence[Offsets], found: Sequence[str]) -> str:
    return (
        f"{pipeline.source}: pipeline {pipeline.name} breaks the law of views: after slices that"
        f" end at {'; '.join(map(str, ends))}, {_few(found)}"
    )


def _few(found: Sequence[str]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{'; '.join(found[:_SHOWN])}{more}"


def _slicings(
    log: MemoryLog, cuts: int, most_slices: int, seed: int, *, by_spark: bool
) -> Iterator[_Slicing]:
    draw = random.Random(seed)  # noqa: S311  # the same cuts again, and no secret
    yield _Slicing([log.end])
    yield _Slicing(_each_event(log, most_slices))
    for _ in range(cuts):
        yield _Slicing(random_ends(Offsets(), log.end, draw), again=draw)
    # The second slice is folded onto the rows that the first has left.
    if by_spark:
        yield _Slicing([_each_event(log, 2)[0], log.end], _ALL_AT_SPARK)


def _rejected(whole: Mapping[str, FoldedRows]) -> Counter[str]:
    rejected: Counter[str] = Counter()
    for row, count in whole[REJECTS].items():
        # A reject that was redriven and folded leaves a row without a reason.
        rejected[str(dict(row)["reason"])] += count * (dict(row)["reason"] is not None)
    return +rejected


class _Trial:
    """The object that folds a log with a pipeline repeatedly, each time cut in another way."""

    def __init__(
        self, scratch: Path, local: LocalPipeline, log: MemoryLog, is_over: Callable[[], bool]
    ) -> None:
        self._scratch = scratch
        self._local = local
        self._log = log
        self._is_over = is_over
        self._tables = build_tables(local.pipeline, local.outputs)
        self._number = 0

    def hold(self, whole: Mapping[str, FoldedRows], slicing: _Slicing) -> None:
        """Raises LawBroken if `slicing` gives other tables than a single slice.

        `whole` contains the rows after a single slice, by table.
        """

        def differing(tried: Sequence[Offsets]) -> list[str]:
            tables = self.tables(replace(slicing, ends=tried), self._is_over)
            return [
                difference
                for table in self._tables
                for difference in differences(table, whole[table.name], tables[table.name])
            ]

        found = differing(slicing.ends)
        if not found:
            return
        smallest, found = _smallest(list(slicing.ends), found, differing)
        how = (
            "the same slice, folded once more,"
            if len(smallest) == 1
            else f"the log in {len(smallest)} slices, which end at {'; '.join(map(str, smallest))},"
        )
        raise LawBroken(
            f"{self._local.pipeline.source}: pipeline {self._local.pipeline.name} breaks the law of"
            f" slices: {how} gives other rows than one slice of all:"
            f" {_few(found)}",
            # A view that reads a differing table is not to blame.
            hint=_OF_VIEWS
            if all(each.startswith("view ") for each in found)
            else "a row's contribution may depend on that row alone: no clock, no chance, nothing"
            f" remembered from one row to the next{_of_doubles(self._tables)}",
            ends=smallest,
        )

    def tables(
        self, slicing: _Slicing, is_over: Callable[[], bool] = lambda: False
    ) -> dict[str, FoldedRows]:
        """Folds the slices of `slicing` into a new build, and returns the rows by table.

        Raises OutOfTime when `is_over` returns True. Raises LawBroken if the stored rows of a view
        differ from the result of the view's query.
        """
        build = self._begun(slicing.driver_rows)
        try:
            for end in slicing.ends:
                if is_over():
                    raise OutOfTime
                if slicing.again is not None:
                    _upset(build, end, slicing.again, slicing.driver_rows)
                build.fold(end)
                self._ensure_texts(build, end, slicing)
            return {table.name: rows_of(build, table) for table in build.birth.tables}
        finally:
            build.close()

    def _ensure_texts(self, build: Rehearsal, end: Offsets, slicing: _Slicing) -> None:
        """Raises LawBroken if a view's stored rows differ from the result of its declared query.

        Kappa rewrites the declared query for each way of maintaining a view. Two ways could give
        the same wrong rows, so the stored rows are compared with the declared query itself.
        """
        if all(table.view is None for table in self._tables):
            return
        if found := unlike_queries(build):
            reached = [*slicing.ends[: list(slicing.ends).index(end) + 1]]
            raise LawBroken(
                _views_text(self._local.pipeline, reached, found),
                hint=f"{_OF_VIEWS}; if its query is so, Kappa keeps the view wrongly: report it",
                ends=reached,
            )

    def unlike_queries(self, ends: Sequence[Offsets]) -> tuple[list[str], int]:
        """Folds slices until a view's stored rows differ from the result of the view's query.

        Returns the differences, and the number of folded slices. If there is no difference after
        any slice, returns no differences and the number of all slices.
        """
        build = self._begun(_ALL_HERE)
        try:
            for number, end in enumerate(ends, 1):
                build.fold(end)
                found = unlike_queries(build)
                if found:
                    return found, number
            return [], len(ends)
        finally:
            build.close()

    def _begun(self, driver_rows: int) -> Rehearsal:
        self._number += 1
        folder = self._scratch / str(self._number)
        return Rehearsal(folder, self._local, self._log, driver_rows=driver_rows)


def _of_doubles(tables: Sequence[TableBirth]) -> str:
    rounded = [
        f"{table.name}.{column}"
        for table in tables
        for column, _ in table.served
        if table.exactness(column) is Exactness.ROUNDED
    ]
    return (
        f"; and {', '.join(rounded)} adds doubles, which lose digits where large ones cancel:"
        " add decimals"
        if rounded
        else ""
    )


def _upset(build: Rehearsal, end: Offsets, draw: random.Random, driver_rows: int) -> None:
    """Restarts the folding job at random, in two of five cases.

    In half of these cases, the job first commits the slice up to `end` and dies before it publishes
    the frontier.
    """
    chance = draw.random()
    if chance < 0.2:
        build.die_before_the_frontier_of(end)
    elif chance < 0.4:
        build.close()
    else:
        return
    build.begin(driver_rows=driver_rows)


def _smallest(
    ends: list[Offsets], found: list[str], differing: Callable[[Sequence[Offsets]], list[str]]
) -> tuple[list[Offsets], list[str]]:
    """Returns the smallest cut found for which the rows differ, and the differences.

    Removes ends from the cut as long as the rows differ: first half of the ends at once, then fewer
    and fewer (Zeller's ddmin). When `differing` raises OutOfTime, returns the smallest cut found so
    far.
    """
    size = len(ends) - 1
    while size > 0:
        place = 0
        while place < len(ends) - 1:
            # The last end is the log's.
            fewer = ends[:place] + ends[min(place + size, len(ends) - 1) :]
            try:
                differs = differing(fewer)
            except OutOfTime:
                return ends, found
            if differs:
                ends, found = fewer, differs
            else:
                place += size
        size //= 2
    return ends, found


def _each_event(log: MemoryLog, most: int) -> list[Offsets]:
    """Returns the ends of slices with one record each, in the order of the records' timestamps.

    If the log has more than `most` records, each slice contains several records.
    """
    order = sorted(log.records, key=lambda record: (record[3], record[0], record[1], record[2]))
    size = -(-len(order) // most) or 1
    ends: list[Offsets] = []
    reached = Offsets()
    for number, (topic, partition, offset, *_) in enumerate(order, 1):
        # Times may go back within a partition.
        reached = reached.highest_with(Offsets({topic: {partition: offset + 1}}))
        if number % size == 0:
            ends.append(reached)
    return [*ends, log.end]


def rows_of(build: Rehearsal, table: TableBirth) -> FoldedRows:
    """Returns the rows of a table for a comparison, without rows that readers do not see.

    These are expired rows, and the hidden rows of a view. If the table has keys, the result maps
    each key to its row; otherwise, the result maps each row to the number of times that the row
    occurs. Raises Broken if a key occurs twice.
    """
    wanted = {*dict(table.compared), DELETED, *(table.row_keys if table.keys else ())}
    compared = [column for column, _ in table.columns if column in wanted]
    found = build.table(table.name).select(compared)
    least = least_kept(table, log_clock(build.birth, build.publisher.newest.log_time))
    if table.expiry is not None and least is not None:
        times = found[table.expiry.column]
        is_kept = pc.greater_equal(times, pa.scalar(least, times.type))
        found = found.filter(pc.fill_null(is_kept, fill_value=True))
    rows = [{column: _plain(value) for column, value in row.items()} for row in python_rows(found)]
    if table.view is not None:
        # The slices decide whether a gone row was ever stored.
        rows = [row for row in rows if not row[DELETED]]
    if table.keys:
        by_key = {tuple(row[key] for key in table.row_keys): row for row in rows}
        if len(by_key) < len(rows):
            raise Broken(
                f"table {table.name} holds a key more than once",
                hint="a fault of Kappa's: please report it, with the pipeline's file",
            )
        return by_key
    return Counter(tuple(row.items()) for row in rows)


def _plain(value: Any) -> Any:
    """Converts a value into a form that can be compared and hashed. NaN becomes None."""
    match value:
        case list():
            return tuple(map(_plain, value))
        case dict():
            return tuple((name, _plain(each)) for name, each in value.items())
        case float() if math.isnan(value):
            return None
        case _:
            return value


def differences(table: TableBirth, whole: FoldedRows, found: FoldedRows) -> Iterator[str]:
    """Yields a sentence for each difference between two tables that were folded from the same log.

    `whole` contains the rows after a single slice, and `found` the rows after several slices.
    """
    name = f"{'table' if table.view is None else 'view'} {table.name}"
    # Appended rows can only be compared whole.
    columns = [
        column for column, _ in table.columns if column in dict(table.served) or column == DELETED
    ]
    for row in [*whole, *(row for row in found if row not in whole)]:
        before, after = whole.get(row), found.get(row)
        match before, after:
            case (dict(), dict()):
                yield from (
                    f"{name}, key {_key_text(row)}, column {column}:"
                    f" {_cut(before[column])} and {_cut(after[column])}"
                    for column in columns
                    if not table.exactness(column).are_equal(column, before, after)
                )
            case (int() | None, int() | None):
                if (before or 0) != (after or 0):
                    shown = {column: value for column, value in row if column[0] != "_"}
                    yield f"{name} has {before or 0} and {after or 0} times {_cut(shown)}"
            case _:
                found_how = "not any more" if after is None else "besides"
                yield f"{name} has key {_key_text(row)} {found_how}"


def _key_text(key: tuple[Any, ...]) -> str:
    return ", ".join(map(_cut, key))


def _cut(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
