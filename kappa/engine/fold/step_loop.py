"""The loop that calls a step key by key, and checks the results.

A step gets the rows of a key singly or in batches, in the order of the log. A step over many keys
is called here only for some keys, and gets one key at a time (column_loop.py). If a step asks to be
woken at a time, the loop calls the step as soon as the log time of the key's partition has reached
the requested time. The log alone decides when the step is woken: before the key's next record, or
at the end of the slice. In both cases, the next record is folded onto the same state.

Records of different partitions have no order between them, and slices decide which records arrive
first. So a key with records in several partitions has a separate state for each partition. Readers
see the state of the lowest partition, which does not depend on the slices. The rejects table
contains a row for each of the other states.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pyarrow as pa

from kappa.base.errors import Broken
from kappa.declare.options import DELETED
from kappa.declare.ordered_fold import FIRST_OFFSET, PARTITION, PLACE_COLUMNS, Over, Step
from kappa.declare.values.arrow import arrow_schema
from kappa.state.table import TableBirth

PLACE = tuple(name for name, _ in PLACE_COLUMNS)
place_of = itemgetter(*PLACE)
_BATCH_ROWS = 10_000
# A value in an error may be long, and the error is kept.
_LONGEST = 400
_LONGEST_KEY = 120
# What a state may have: a slice has as many states as keys, and a row is written whole.
MOST_BYTES = 16 * 1024 * 1024
_KAPPA = Path(__file__).parents[2]
# Per column type: the class and the condition of Python values that Arrow returns unchanged.
# All other values are converted by Arrow.
_EXACT: Mapping[pa.DataType, tuple[type, Callable[[Any], bool]]] = {
    # Text beyond ASCII may have halves of characters.
    pa.string(): (str, str.isascii),
    pa.bool_(): (bool, lambda _: True),
    pa.float64(): (float, lambda _: True),
    pa.date32(): (date, lambda _: True),
    **{
        kind: (int, range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1).__contains__)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
}
_NONE_EXACT: tuple[type, Callable[[Any], bool]] = (type(None), lambda _: False)
MEND = "mend the step and deploy it, as a new version: kappa deploy"
Key = tuple[Any, ...]
Row = Mapping[str, Any]
# The record that a step is called with: () for several records, None where the step is woken.
Place = tuple[Any, ...] | None
# The log time of each partition, in milliseconds, as a mark has it.
Clocks = Mapping[str, Mapping[int, int]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class FailedStep(NamedTuple):
    """A record on which a step fails, with the line of the user's code and the error.

    If the step fails when it is woken, the record is the last record of the key, and `woken_at` is
    the time for which the step had asked, in microseconds since 1970. The class also describes
    another case, a state that readers do not see. Then the record is the first record of the state,
    and `line` is empty.
    """

    topic: str
    partition: int
    offset: int
    line: str
    error: str
    woken_at: int | None = None


@dataclass(frozen=True, slots=True)
class Judging:
    """The settings that decide what happens to records on which a step fails.

    If `notes` is True, failures are collected instead of raised. If `one_by_one` is True, a batch
    has one row. `without` contains the places (topic, partition, offset) of records that must have
    no effect, or is None. If `without` is not None, each record is tried separately. The effect of
    a record is undone if the step fails on this record, or if `without` contains the record's
    place. If `without` is None, nothing is undone.
    """

    notes: bool = False
    one_by_one: bool = False
    without: frozenset[tuple[Any, ...]] | None = None


class StepLoop:
    """A loop that calls a step key by key, and stores the resulting rows until `take` is called.

    If failures are collected, the fold of a key ends at the first record on which the step fails:
    the slice must be folded again without that record. If the step fails on a batch of several
    records, the failing record is unknown, and `is_unsure` becomes True. If records are tried
    separately, the fold of a key continues after a failing record, as if that record did not exist.

    `noted` contains records that are folded nevertheless. If a step fails when it is woken, the
    key's last record is added to `noted`, and the key gets the state before the call, without a
    time to be woken. So the state does not depend on where a slice ends. The first record of each
    state that readers do not see is also added to `noted`.
    """

    def __init__(
        self,
        table: TableBirth,
        emitted: TableBirth | None,
        step: Step,
        over: Over,
        on_time: str | None,
        clocks: Clocks,
        judging: Judging = Judging(),  # a frozen value
    ) -> None:
        """Creates a loop that calls `step` with rows in the form `over`.

        `emitted` is the table of emitted rows, or None. `on_time` is the column with the time at
        which the step asks to be woken. `clocks` contains the log times at the end of the slice.
        `judging` decides what happens to records on which the step fails.
        """
        self.failed: list[FailedStep] = []
        self.noted: list[FailedStep] = []
        self.is_unsure = False
        self._notes = judging.notes
        self._without = judging.without
        self._batch_rows = 1 if judging.one_by_one or over is Over.ROW else _BATCH_ROWS
        self._emitted_at: list[Place] = []
        self._table = table
        self._emitted_table = emitted
        self._on_time = on_time
        self._clocks = clocks
        self._call = step
        self._declared_at = declared_at(step)
        self._over = over
        own = {*table.keys, *PLACE, FIRST_OFFSET, DELETED}
        self._state = [name for name, _ in table.columns if name not in own]
        self._emitted = (
            frozenset(name for name, _ in emitted.columns) if emitted is not None else frozenset()
        )
        self._into = "" if emitted is None else emitted.name
        self._given = arrow_schema(table.steps_over)
        kept = arrow_schema(table.columns)
        self._columns = [
            (
                name,
                kept.field(name),
                *(
                    _NONE_EXACT
                    if over is Over.PANDAS
                    else _EXACT.get(kept.field(name).type, _NONE_EXACT)
                ),
            )
            for name in self._state
        ]
        self._rows: dict[str, list[Row]] = {name: [] for name in (self._into, table.name) if name}

    def fold(self, key: Key, held: Iterable[Row], rows: Iterable[Row]) -> None:
        """Folds the rows of one key into the key's states.

        `rows` are in the order of the log. `held` contains the table's rows for the key; if `rows`
        is not empty, `held` must contain all of the table's rows for the key. `rows` may be empty
        if the step can be woken.
        """
        states = {row[PARTITION]: row for row in held}
        made: dict[int, Row | None] = {}
        for partition, of_partition in groupby(rows, key=itemgetter(PARTITION)):
            if not self._keeps_partitions:
                self._ensure_one_partition(key, {*states, *made}, partition)
            made[partition] = self._fold_partition(key, states.get(partition), of_partition)
        if self._on_time is not None:
            for partition in states.keys() - made.keys():
                made[partition] = self._fold_partition(key, states[partition], ())
        changed = {partition: row for partition, row in made.items() if row is not None}
        if changed.keys() - states.keys():
            changed = self._hide_states(key, states, changed)
        self._rows[self._table.name] += changed.values()

    def _hide_states(
        self, key: Key, states: Mapping[int, Row], changed: Mapping[int, Row]
    ) -> dict[int, Row]:
        """Hides all states of a key except the state of the lowest partition.

        `states` contains all states before the slice. `changed` contains the states after the
        slice, some of which are new. Returns the states that must be written. The first record of
        each newly hidden state is added to `noted`.
        """
        after = {**states, **changed}
        shown, before = min(after), min(states, default=None)
        written = dict(changed)
        for partition, row in after.items():
            is_hidden = partition != shown
            if is_hidden or row.get(DELETED):
                written[partition] = {**row, DELETED: is_hidden}
            if is_hidden and (partition not in states or partition == before):
                place = row["_topic"], partition, row[FIRST_OFFSET]
                self.noted.append(FailedStep(*place, "", self._hidden_text(key)))
        return written

    def _fold_partition(self, key: Key, held: Row | None, rows: Iterable[Row]) -> Row | None:
        """Folds the rows of a key in one partition, beginning with the state in `held`.

        `held` is the table's row for the key and the partition, or None. Returns the new row of the
        table, or None if the state does not change.
        """
        state = (
            dict.fromkeys(self._state)
            if held is None
            else {name: held[name] for name in self._state}
        )
        at = None if held is None else place_of(held)
        first = None if held is None else held.get(FIRST_OFFSET)
        is_changed = False
        in_order = _ordered_rows(rows)
        if self._without is not None:
            tried, last = self._try_records(state, key, at, in_order, self._without)
            first = tried if held is None else first
            at, is_changed = last, last != at
        while batch := list(islice(in_order, self._batch_rows)):
            # Not between rows of one record: no slice ends there.
            if self._on_time is not None and place_of(batch[0]) != at:
                self._wake(state, key, at, batch[0]["_log_time"])
            try:
                self._step(state, batch, key)
            except Exception as error:
                if not self._notes:
                    raise
                self._note(_place_in(batch), error)
                return None
            first = batch[0]["_offset"] if at is None else first
            at, is_changed = place_of(batch[-1]), True
        if self._on_time is not None and at is not None:
            topic, partition, _ = at
            clock = self._clocks.get(topic, {}).get(partition)
            is_changed |= clock is not None and self._wake(state, key, at, clock)
        if at is None or not is_changed:
            return None
        return {
            **state,
            **dict(zip(self._table.keys, key, strict=True)),
            **dict(zip(PLACE, at, strict=True)),
            FIRST_OFFSET: first,
            DELETED: held is not None and bool(held.get(DELETED)),
        }

    def _try_records(
        self,
        state: dict[str, Any],
        key: Key,
        at: Key | None,
        rows: Iterable[Row],
        without: frozenset[tuple[Any, ...]],
    ) -> tuple[int | None, Key | None]:
        """Folds the rows of one key, one record after the other.

        If the step fails on a record, or if `without` contains the record's place, the effect of
        the record on the state is undone. `at` is the place (topic, partition, offset) of the last
        record in the state, or None. Returns the offset of the first record whose effect was not
        undone, or None, and the place of the last such record, or `at`.
        """
        first: int | None = None
        for place, found in groupby(rows, key=place_of):
            of_record = list(found)
            if self._on_time is not None:
                self._wake(state, key, at, of_record[0]["_log_time"])
            before, emitted = deepcopy(state), self._count_emitted()
            is_failing = False
            try:
                for row in of_record:
                    self._step(state, [row], key)
                self._ensure_emitted_fit(emitted)
            except Exception as error:
                if not self._notes:
                    raise
                self._note(place, error)
                is_failing = True
            if is_failing or place in without:
                self._undo(state, before, emitted)
            else:
                at, first = place, place[-1] if first is None else first
        return first, at

    def _count_emitted(self) -> int:
        return len(self._rows.get(self._into, ()))

    def _ensure_emitted_fit(self, since: int) -> None:
        """Raises Broken if an emitted row does not fit its table.

        The emitted rows from the index `since` on are checked.
        """
        if self._emitted_table is not None and self._count_emitted() > since:
            table = self._emitted_table
            self._as_table(table, arrow_schema(table.columns), self._rows[self._into][since:])

    def _undo(self, state: dict[str, Any], before: Mapping[str, Any], emitted: int) -> None:
        """Restores the state `before`, and deletes the rows that were emitted since then."""
        state.clear()
        state.update(before)
        if self._into:
            del self._rows[self._into][emitted:]
        del self._emitted_at[emitted:]

    def _note(self, place: Place, error: Exception) -> None:
        if not place:
            self.is_unsure = True
            return
        topic, partition, offset = place
        self.failed.append(FailedStep(topic, partition, offset, *self._failure(error)))

    def _failure(self, error: Exception, where: str = "") -> tuple[str, str]:
        """Returns a pair: the line of the user's code (`file:line`), and a text of the error.

        `where` is added to the text if the user's code raised the error.
        """
        file, declared_line = self._declared_at
        # As in a project: its modules are beside or below the folder of its pipelines.
        project = file.parent.parent
        passed = [
            (Path(each.filename), each.lineno)
            for each in traceback.extract_tb(error.__traceback__)
            if Path(each.filename).is_relative_to(project) and "site-packages" not in each.filename
        ]
        own = [each for each in passed if not each[0].is_relative_to(_KAPPA)]
        raised_in, line = own[-1] if own else (file, declared_line)
        said = (
            error.message
            if isinstance(error, Broken)
            else f"raised {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            f" (in the step of table {self._table.name}{where})"
        )
        return f"{raised_in.relative_to(project)}:{line}", said[:_LONGEST]

    def _wake(self, state: dict[str, Any], key: Key, at: Key | None, log_time: int) -> bool:
        """Calls the step for each requested time that is not after `log_time`.

        Returns True if the step was called. `at` is the place of the key's last record. If the
        settings collect failures, a failure is collected. Otherwise raises the step's own error, or
        Broken if the step asks again for the same or an earlier time.
        """
        assert self._on_time is not None
        is_woken = False
        while (asked := state[self._on_time]) is not None and _micros(asked) <= log_time * 1000:
            before = deepcopy(state) if self._notes else {}
            emitted = self._count_emitted()
            try:
                self._step(state, (), key)
                self._ensure_later(state[self._on_time], asked, key)
                if self._notes:
                    self._ensure_emitted_fit(emitted)
            except Exception as error:
                if not self._notes or at is None:
                    raise
                self._undo(state, {**before, self._on_time: None}, emitted)
                where = f", woken at {asked.isoformat()} for key {_key_text(key)}"
                topic, partition, offset = at
                self.noted.append(
                    FailedStep(
                        topic, partition, offset, *self._failure(error, where), _micros(asked)
                    )
                )
            is_woken = True
        return is_woken

    def _ensure_later(self, again: datetime | None, asked: datetime, key: Key) -> None:
        if again is not None and again <= asked:
            raise Broken(
                f"{self._step_name} was woken at {asked.isoformat()} for key {_key_text(key)} "
                f"and leaves {self._on_time} at {again.isoformat()}: it would be woken for ever",
                hint=f"where the row is None, set {self._on_time} to None or to a later time; "
                f"{MEND}",
            )

    @property
    def _keeps_partitions(self) -> bool:
        # With on_error="stop" nothing is a reject, and nothing would tell of a hidden state.
        return self._notes and self._table.keeps_partitions

    def _ensure_one_partition(self, key: Key, known: Iterable[int], partition: int) -> None:
        """Raises Broken if a key has rows or states in a partition other than `partition`."""
        other = next((each for each in known if each != partition), None)
        if other is not None:
            raise Broken(
                f"table {self._table.name} is folded in the order of the log, and rows of key "
                f"{_key_text(key)} lie in partition {other} and in partition {partition}, which "
                "have no order between them",
                hint="produce each key to one partition; after partitions were added, a topic made "
                "anew and produced to again has one order"
                if self._table.keeps_partitions
                else "kappa replay makes a new build, which keeps a state for each partition",
            )

    def _hidden_text(self, key: Key) -> str:
        # The other partitions are not named: slices decide which of them is known by now.
        return (
            f"table {self._table.name} is folded in the order of the log, and rows of key "
            f"{_key_text(key)} lie in a lower partition, too: readers see the state of the lowest"
        )

    def is_full(self, table: TableBirth) -> bool:
        """Returns True if so many rows of a table are stored that `take` should be called."""
        return len(self._rows[table.name]) >= _BATCH_ROWS

    def take(self, table: TableBirth) -> pa.Table:
        """Returns the rows of a table that were made since the last call of `take` for this table.

        The returned rows are removed from this loop. Raises Broken if a value does not fit its
        column. But if the settings collect failures, an emitted row that does not fit is left out,
        and a failure is collected for the record that caused the row.
        """
        rows, self._rows[table.name] = self._rows[table.name], []
        schema, places = arrow_schema(table.columns), []
        if table.name == self._into:
            places, self._emitted_at = self._emitted_at, []
        try:
            return self._as_table(table, schema, rows)
        except Broken:
            if not places:
                raise
            return self._as_table(table, schema, self._fitting(table, rows, places))

    def _as_table(self, table: TableBirth, schema: pa.Schema, rows: list[Row]) -> pa.Table:
        return pa.Table.from_arrays(
            [self._array(table, field, [row.get(field.name) for row in rows]) for field in schema],
            schema=schema,
        )

    def _fitting(self, table: TableBirth, rows: list[Row], places: list[Place]) -> list[Row]:
        """Returns the emitted rows that fit the table, and collects a failure for each other row.

        `places` contains the place of the record that caused each row.
        """
        schema, fitting = arrow_schema(table.columns), []
        for row, place in zip(rows, places, strict=True):
            try:
                self._as_table(table, schema, [row])
            except Broken as error:
                # Rows of a step that was woken were tried before.
                self._note(() if place is None else place, error)
            else:
                fitting.append(row)
        return fitting

    def _array(self, table: TableBirth, field: pa.Field, values: list[Any]) -> pa.Array:
        try:
            # Otherwise Arrow does not read pandas' nulls as nulls.
            return pa.array(values, field.type, from_pandas=self._over is Over.PANDAS)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._unfit(table, field, error) from error

    def _returned(self, field: pa.Field, value: Any) -> tuple[Any, int]:
        """Converts a value of the state as the table does when it stores and returns the value.

        Returns the converted value, and its size in bytes. Raises Broken if the value does not fit
        the column.
        """
        found = self._array(self._table, field, [value])
        try:
            return found.to_pylist()[0], found.nbytes
        except (OverflowError, ValueError) as error:
            # A time with a zone may be of the year 10000 in UTC.
            raise self._unfit(self._table, field, error) from error

    def _unfit(self, table: TableBirth, field: pa.Field, error: Exception) -> Broken:
        return Broken(
            f"{self._step_name} gives {field.name} of table {table.name}, "
            f"which is {field.type}, what does not fit: {error}",
            hint=MEND,
        )

    def _step(self, state: dict[str, Any], batch: Sequence[Row], key: Key) -> None:
        """Calls the step with the rows in `batch`, and checks the result.

        If `batch` is empty, the step is woken: it is called with None or with an empty table.
        Raises the step's own error if the step fails. Raises Broken if the emitted rows or the
        state do not fit the tables.
        """
        # A step that is woken has no row to take its key from; the step's changes to the key are
        # not kept.
        known = () if self._on_time is None else self._table.keys
        state.update(zip(known, key, strict=False))
        try:
            # Copied at once: the step may yield its own state and change it afterwards.
            emitted = [
                deepcopy(each)
                for each in self._as_rows(self._call(state, self._batch_for_step(batch)))
            ]
        except Exception as error:
            # The caller adds the line that raised; only here the record is known.
            where = f"at {_place_text(batch)}" if batch else "woken without a row"
            error.add_note(f"{self._step_name} was {where}, key {_key_text(key)}")
            raise
        for each in emitted:
            if not isinstance(each, Mapping) or not self._emitted.issuperset(each):
                raise Broken(
                    f"{self._step_name} emits {each!r}",
                    hint=f"it emits mappings with columns of {self._into}: "
                    f"{', '.join(sorted(self._emitted))}"
                    if self._into
                    else "say into which table: ordered(..., emits=...)",
                )
        self._rows.get(self._into, []).extend(emitted)
        if self._notes:
            self._emitted_at.extend([_place_in(batch) if batch else None] * len(emitted))
        for name in known:
            state.pop(name, None)
        if len(state) != len(self._state) or not all(name in state for name in self._state):
            raise Broken(
                f"{self._step_name} leaves the state of key {_key_text(key)} "
                f"with {', '.join(map(str, state)) or 'nothing'}",
                hint=f"it has {', '.join(self._state)}; {MEND}",
            )
        # Read back as from the table, so that the next step gets the same state whether a batch or
        # a slice ends here.
        size = 0
        for name, field, kind, is_exact in self._columns:
            value = state[name]
            if value is None:
                continue
            if type(value) is kind and is_exact(value):
                size += len(value) if isinstance(value, str) else 0
            else:
                state[name], more = self._returned(field, value)
                size += more
        if size > MOST_BYTES and self._table.keeps_partitions:
            raise Broken(
                f"{self._step_name} leaves the state of key {_key_text(key)} with {size:,} bytes,"
                f" and a state may have {MOST_BYTES:,}",
                hint=MEND,
            )

    def _batch_for_step(self, batch: Sequence[Row]) -> Any:
        if self._over is Over.ROW:
            return batch[0] if batch else None
        table = pa.Table.from_pylist(batch, schema=self._given)
        if self._over is not Over.PANDAS:
            return table
        # Its import takes as long as folding a small slice, and few steps use it.
        import pandas as pd  # noqa: PLC0415

        # With types of its own, pandas would make doubles of integers beside a null.
        return table.to_pandas(types_mapper=pd.ArrowDtype)

    def _as_rows(self, returned: Any) -> Iterable[Any]:
        """Returns an iterator over the rows that a step returns or yields."""
        if type(returned).__module__.partition(".")[0] == "pandas":
            returned = pa.Table.from_pandas(returned, preserve_index=False)
        if isinstance(returned, pa.Table | pa.RecordBatch):
            returned = returned.to_pylist()
        return iter(returned or ())

    @property
    def _step_name(self) -> str:
        return f"the step of table {self._table.name}"


def _ordered_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yields the rows of a partition in the order of the log.

    Rows of the same record are sorted by their values, so their order does not depend on the order
    in which they arrive.
    """
    for _, found in groupby(rows, key=place_of):
        same = list(found)
        yield from (same if len(same) == 1 else sorted(same, key=row_order))


def row_order(row: Row) -> str:
    """Returns a sort key for the rows of the same record: the text of all columns, by name."""
    return repr(sorted(row.items()))


def declared_at(step: Any) -> tuple[Path, int]:
    """Returns the file and the line at which a step is declared.

    The step is the user's function, or an object of Kappa with the attribute `declared_at`.
    """
    if isinstance(step, FunctionType):
        return Path(step.__code__.co_filename), step.__code__.co_firstlineno
    found: tuple[Path, int] = step.declared_at
    return found


def _micros(time: datetime) -> int:
    """Returns a time as microseconds since 1970.

    Log times are compared as integers, since they may be beyond the range of a datetime.
    """
    return (time - EPOCH) // MICROSECOND


def _place_in(batch: Sequence[Row]) -> Place:
    place: Place = place_of(batch[0]) if len(batch) == 1 else ()
    return place


def _place_text(batch: Sequence[Row]) -> str:
    first, last = batch[0], batch[-1]["_offset"]
    offsets = f"offset {last}" if len(batch) == 1 else f"offsets {first['_offset']} to {last}"
    return f"{first['_topic']} partition {first['_partition']} {offsets}"


def _key_text(key: Key) -> str:
    # A producer's key may be very long, and errors are kept.
    shown = ", ".join(map(repr, key))
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}..."
