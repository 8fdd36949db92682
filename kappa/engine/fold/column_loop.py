"""A fold of many keys at once, with a step that processes whole columns.

The step gets a table with the states of the keys, and a table with the rows of these keys in the
order of the log. No code here runs row by row. In two cases, the loop over keys (step_loop.py) is
used instead: for keys to which this slice gives rows in one more partition, and for the search for
records on which a step fails. That loop calls the same step with one key at a time, through
`OneKey`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.declare.options import DELETED
from kappa.declare.ordered_fold import FIRST_OFFSET, PARTITION, STATE
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.step_loop import MEND, MOST_BYTES, PLACE, declared_at, row_order
from kappa.state.table import TableBirth

Numbers = npt.NDArray[np.int64]
_OFFSET = "_offset"


@dataclass(frozen=True, slots=True)
class FoldedColumns:
    """The states and emitted rows of many keys, and the input of the keys that are not folded.

    `left` contains the rows and the stored states of the keys that are not folded, or is None if
    all keys are folded.
    """

    states: pa.Table
    emitted: pa.Table
    left: tuple[pa.Table, pa.Table] | None


class ColumnsStep:
    """A step over the rows of many keys, with the checks of its results."""

    def __init__(
        self, table: TableBirth, emitted: TableBirth | None, step: Callable[..., Any]
    ) -> None:
        own = {*table.keys, *PLACE, FIRST_OFFSET, DELETED}
        self.call = step
        self.keys = table.keys
        self._table = table
        self.state = arrow_schema([(name, kind) for name, kind in table.columns if name not in own])
        self.emitted = arrow_schema(() if emitted is None else emitted.columns)
        self._into = "" if emitted is None else emitted.name

    def run(
        self, keys: pa.Table, held: pa.Table, rows: pa.Table, of: Numbers
    ) -> tuple[pa.Table, pa.Table]:
        """Calls the step, and returns the new states of the keys and the emitted rows.

        `held` contains the states before the call, one row for each of the `keys`. `of` contains,
        for each row of `rows`, the index of the row's key in `keys`. Raises Broken if a result of
        the step does not have the required rows, columns or types.
        """
        states = pa.Table.from_arrays(
            [*keys.columns, *held.columns], schema=pa.schema([*keys.schema, *held.schema])
        )
        given = rows.append_column(pa.field(STATE, pa.int64()), pa.array(of))
        returned = self.call(states, given)
        after, emitted = returned if isinstance(returned, tuple) else (returned, None)
        return self._states(after, keys.num_rows), self._emits(emitted)

    def _states(self, returned: Any, count: int) -> pa.Table:
        table = _as_table(returned)
        if (
            table is None
            or table.num_rows != count
            or {*self.state.names} != {*table.column_names} - {*self.keys}
        ):
            got = (
                "no table"
                if table is None
                else f"{table.num_rows} states with {', '.join(table.column_names) or 'no column'}"
            )
            raise Broken(
                f"{self._name} returns {got} for {count} keys",
                hint=f"it returns a row for each key, with {', '.join(self.state.names)}; {MEND}",
            )
        return self._fitting(self._table.name, table, self.state)

    def _emits(self, returned: Any) -> pa.Table:
        if returned is None:
            return self.emitted.empty_table()
        table = _as_table(returned)
        if table is None or not {*table.column_names} <= {*self.emitted.names}:
            got = type(returned).__name__ if table is None else ", ".join(table.column_names)
            raise Broken(
                f"{self._name} emits {got}",
                hint=f"it emits a table with columns of {self._into}: "
                f"{', '.join(self.emitted.names)}"
                if self._into
                else "say into which table: ordered(..., emits=...)",
            )
        return self._fitting(self._into, table, self.emitted)

    def _fitting(self, name: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """Returns the table's columns that `schema` names, cast to the types of `schema`.

        A missing column is filled with nulls. Raises Broken if a value does not fit its type.
        """
        columns = []
        for field in schema:
            if field.name not in table.column_names:
                columns.append(pa.nulls(table.num_rows, field.type))
                continue
            try:
                columns.append(table.column(field.name).cast(field.type))
            except (pa.ArrowException, NotImplementedError) as error:
                raise Broken(
                    f"{self._name} gives {field.name} of table {name}, "
                    f"which is {field.type}, what does not fit: {error}",
                    hint=MEND,
                ) from error
        return pa.Table.from_arrays(columns, schema=schema)

    @property
    def _name(self) -> str:
        return f"the step of table {self._table.name}"


class OneKey:
    """An adapter by which the loop over keys calls a step over many keys with a single key."""

    def __init__(self, step: ColumnsStep) -> None:
        self._step = step
        self.declared_at = declared_at(step.call)

    def __call__(self, state: dict[str, Any], rows: pa.Table) -> list[dict[str, Any]]:
        """Updates `state` with the state after `rows`, and returns the emitted rows."""
        step = self._step
        held = pa.Table.from_pylist([state], schema=step.state)
        keys = rows.select(list(step.keys)).slice(0, 1)
        after, emitted = step.run(keys, held, rows, np.zeros(rows.num_rows, np.int64))
        state.update(after.to_pylist()[0])
        found: list[dict[str, Any]] = emitted.to_pylist()
        return found


class ColumnLoop:
    """The fold of many keys at once by a step over columns."""

    def __init__(self, table: TableBirth, step: ColumnsStep) -> None:
        self._table = table
        self._step = step
        self._schema = arrow_schema(table.columns)

    def fold(self, rows: pa.Table, held: pa.Table) -> FoldedColumns:
        """Folds rows into the stored states of their keys, in the order of the log.

        `held` contains the stored rows of at least the keys of `rows`. Both tables may be in any
        order.
        """
        if rows.num_rows == 0:
            return FoldedColumns(self._schema.empty_table(), self._step.emitted.empty_table(), None)
        key_of, held_key_of = numbered([rows, held], self._table.keys)
        of, held_of = _paired(
            [key_of, held_key_of], [_numbers(rows, PARTITION), _numbers(held, PARTITION)]
        )
        count = 1 + int(max(of.max(), held_of.max(initial=0)))
        key_of_state = np.empty(count, np.int64)
        key_of_state[of], key_of_state[held_of] = key_of, held_key_of
        # The place of a state among the stored states, or -1.
        place_of_state = np.full(count, -1, np.int64)
        place_of_state[held_of] = np.arange(len(held_of))
        is_left = _split_keys(key_of_state, place_of_state < 0)
        if is_left.any():
            of_rows, of_held = pa.array(is_left[key_of]), pa.array(is_left[held_key_of])
            folded = self.fold(rows.filter(pc.invert(of_rows)), held.filter(pc.invert(of_held)))
            return replace(folded, left=(rows.filter(of_rows), held.filter(of_held)))
        offsets = _numbers(rows, _OFFSET)
        order = np.lexsort((offsets, of))
        of, offsets = of[order], offsets[order]
        is_first = np.r_[True, of[1:] != of[:-1]][: len(of)]
        is_same_record = ~is_first[1:] & (offsets[1:] == offsets[:-1])
        if is_same_record.any():
            order = _with_ordered_records(rows, order, is_same_record)
        rows = rows.take(pa.array(order))
        first = np.flatnonzero(is_first)
        last = np.r_[first[1:], len(of)][: len(first)] - 1
        places = place_of_state[of[first]]
        before = held.take(pa.array(places, mask=places < 0))
        keys = rows.select(list(self._table.keys)).take(pa.array(first))
        number = np.cumsum(is_first) - 1
        states, emitted = self._step.run(
            keys, before.select(self._step.state.names), rows, number.astype(np.int64)
        )
        self._ensure_small(states)
        return FoldedColumns(self._stored(keys, states, before, rows, first, last), emitted, None)

    def _stored(
        self,
        keys: pa.Table,
        states: pa.Table,
        before: pa.Table,
        rows: pa.Table,
        first: Numbers,
        last: Numbers,
    ) -> pa.Table:
        """Returns the new rows of the table: keys, states, and the place of each key's last row.

        A row's place is the topic, partition and offset of the row's record.
        """
        place = rows.select(list(PLACE)).take(pa.array(last))
        columns: dict[str, Any] = {
            **dict(zip(keys.column_names, keys.columns, strict=True)),
            **dict(zip(states.column_names, states.columns, strict=True)),
            **dict(zip(PLACE, place.columns, strict=True)),
        }
        if self._table.keeps_partitions:
            offsets = rows.column(_OFFSET).take(pa.array(first))
            was_there = before.column(PARTITION).is_valid()
            columns[FIRST_OFFSET] = pc.if_else(was_there, before.column(FIRST_OFFSET), offsets)
            columns[DELETED] = pc.fill_null(before.column(DELETED), fill_value=False)
        return pa.Table.from_arrays(
            [columns[field.name].cast(field.type) for field in self._schema], schema=self._schema
        )

    def _ensure_small(self, states: pa.Table) -> None:
        """Raises Broken if the size of a state may exceed MOST_BYTES.

        The caller then folds with the loop over keys, which finds the key with the large state.
        """
        if not self._table.keeps_partitions or states.nbytes <= MOST_BYTES:
            return
        sizes = np.zeros(states.num_rows, np.int64)
        for column in states.columns:
            kind = column.type
            if pa.types.is_string(kind) or pa.types.is_binary(kind):
                sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
            elif pa.types.is_nested(kind):
                sizes += [column.slice(place, 1).nbytes for place in range(len(column))]
        if (sizes > MOST_BYTES).any():
            raise Broken(f"a state of table {self._table.name} is too large", hint=MEND)


def _split_keys(key_of_state: Numbers, is_new: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Returns a mask of the keys with states in several partitions, of which one or more are new.

    `key_of_state` contains the number of each state's key. `is_new` is True for states that are not
    stored yet.
    """
    states_of_key = np.bincount(key_of_state)
    is_left = np.zeros(len(states_of_key), np.bool_)
    is_left[key_of_state[is_new & (states_of_key[key_of_state] > 1)]] = True
    return is_left


def numbered(tables: Sequence[pa.Table], names: Iterable[str]) -> list[Numbers]:
    """Numbers the distinct keys of several tables from 0, and returns an array for each table.

    An array contains the number of each row's key. Two nulls are the same key. The tables contain
    the key columns `names` with the same types.
    """
    found: list[Numbers] | None = None
    for name in names:
        column = pa.chunked_array(
            [chunk for table in tables for chunk in table.column(name).chunks],
            tables[0].schema.field(name).type,
        ).combine_chunks()
        codes = _codes(column)
        parts = np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])
        found = parts if found is None else _paired(found, parts)
    assert found is not None, "a table that is folded has keys"
    return found


def _paired(ones: Sequence[Numbers], others: Sequence[Numbers]) -> list[Numbers]:
    """Numbers the distinct pairs (number in `ones`, number in `others`) from 0.

    Returns, for each array in `ones`, an array with the numbers of its pairs.
    """
    one, other = np.concatenate(ones), np.concatenate(others)
    pairs = _codes(pa.array(one * (other.max(initial=0) + 1) + other))
    return np.split(pairs, np.cumsum([len(each) for each in ones])[:-1])


def _codes(column: pa.Array) -> Numbers:
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _numbers(table: pa.Table, name: str) -> Numbers:
    numbers: Numbers = table.column(name).to_numpy().astype(np.int64)
    return numbers


def _with_ordered_records(
    rows: pa.Table, order: Numbers, is_same_record: npt.NDArray[np.bool_]
) -> Numbers:
    """Returns `order`, changed so that rows of one record are sorted by their values."""
    ends = np.flatnonzero(np.diff(np.r_[False, is_same_record, False].astype(np.int8)))
    order = order.copy()
    for begin, end in zip(ends[::2], ends[1::2] + 1, strict=True):
        places = order[begin:end]
        same = rows.take(pa.array(places)).to_pylist()
        order[begin:end] = places[sorted(range(len(same)), key=lambda at: row_order(same[at]))]
    return order


def _as_table(returned: Any) -> pa.Table | None:
    """Converts a table of any library that supports Arrow into an Arrow table.

    Returns None for any other value.
    """
    if isinstance(returned, pa.Table):
        return returned
    if type(returned).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(returned, preserve_index=False)
    if isinstance(returned, pa.RecordBatch) or hasattr(returned, "__arrow_c_stream__"):
        return pa.table(returned)
    return None
