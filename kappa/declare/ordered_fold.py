"""Ordered folds: a step folds the rows of a key, in the order of the log. Pure.

The step is a function that the user writes, or Kappa's own step for sessions. The user's step is
called for each row, for batches of a key's rows, or for the rows of many keys at once. A step can
compute results that counts and sums cannot express: sessions, patterns, balances that must not
become negative. kappa/engine/fold/ordered_fold.py calls the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.units import exact_duration
from kappa.declare.folds.fold import Fold
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.options import describe_value, error_prefix, option_text
from kappa.declare.values.columns import Column, Scalar, parse_columns

# Gets the state of a key, to change in place, and rows of the key, or None at a wake-up. The rows
# that the step returns are emitted.
Step = Callable[[dict[str, Any], Any], Any]
# The place of the last row that was folded into a state, with Spark's types.
PLACE_COLUMNS = (("_topic", "string"), ("_partition", "int"), ("_offset", "bigint"))
# A key has a state for each partition with records of the key. Readers see the state of the least
# partition. `first_offset` is the first record that was folded into a state.
PARTITION, FIRST_OFFSET = "_partition", "_first_offset"
# In the rows of many keys: the place of the row's key in the table of states.
STATE = "_state"
# The first and the last time of a session.
SINCE, LAST = "since", "last"


class Over(StrEnum):
    """The form in which a step receives rows.

    With ROW, the step receives one row, as a mapping. With ARROW or PANDAS, the step receives a
    table with the rows of one key in the slice; if there are very many rows, the step is called
    several times, each time with a table of some of these rows. With KEYS, the step receives a
    table with the rows of many keys, and a table with the states of these keys.
    """

    ROW = "row"
    KEYS = "keys"
    ARROW = "arrow"
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True)
class Sessions:
    """The declaration of sessions: the time column, the gap in milliseconds, and the folds.

    `fold` maps each column of a session to the fold of the session's rows.
    """

    at: str
    gap_ms: int
    fold: Mapping[str, Fold]
    source: Source = field(compare=False)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Returns the names of the columns in which a key's state stores the open session."""
        return (SINCE, LAST, *self.fold)

    def column_types(self, rows: ReturnedColumns) -> tuple[tuple[str, str], ...]:
        """Returns the columns in which a key's state stores the open session, as (name, type).

        `rows` are the columns that the pipeline's function returns. Raises DeclarationError if a
        needed column is missing or has a wrong type.
        """
        if rows.type_of(self.at, "the time of its sessions") != Scalar("timestamp"):
            raise rows.table_error(
                f"has sessions by {self.at}, which is of type {rows.types[self.at]} and no "
                "timestamp",
                hint=f'cast it in the function: F.col("{self.at}").cast("timestamp")',
            )
        folded = (next(fold.stored_columns(name, rows)) for name, fold in self.fold.items())
        return ((SINCE, "timestamp"), (LAST, "timestamp"), *folded)

    def __str__(self) -> str:
        folds = "".join(f", {name} = {fold}" for name, fold in self.fold.items())
        return f"sessions({self.at}, gap {exact_duration(self.gap_ms)}{folds}"


@dataclass(frozen=True, slots=True)
class Ordered:
    """The declaration of an ordered fold.

    `state` contains the columns of a key's state. `emits` is the name of the table that receives
    the emitted rows. `on_time` is the column of the state that contains the time at which the step
    is to be woken next. If the fold is declared by `sessions`, Kappa's own step is used, and `step`
    is None. In this case, `state` is empty, because the columns that the pipeline's function
    returns decide the types of the state.
    """

    step: Step | None = field(compare=False)
    state: tuple[Column, ...]
    emits: str | None = None
    over: Over = Over.ROW
    on_time: str | None = None
    sessions: Sessions | None = None

    @property
    def code_places(self) -> tuple[tuple[str, str], ...]:
        """Returns (module, name) for each function of the user that the fold calls."""
        return () if self.step is None else ((self.step.__module__, self.step.__qualname__),)

    @property
    def folded_by(self) -> Step | Sessions:
        """Returns the user's step, or the declaration of sessions if Kappa's own step is used."""
        found = self.step if self.sessions is None else self.sessions
        assert found is not None, "a fold is by a step or by sessions"
        return found

    @property
    def state_names(self) -> tuple[str, ...]:
        """Returns the names of the columns of the state."""
        if self.sessions is not None:
            return self.sessions.column_names
        return tuple(column.name for column in self.state)

    def state_columns(self, rows: ReturnedColumns) -> tuple[tuple[str, str], ...]:
        """Returns the names and types of the columns of the state.

        `rows` are the columns that the pipeline's function returns. Raises DeclarationError if a
        column that sessions need is missing or has a wrong type.
        """
        if self.sessions is not None:
            return self.sessions.column_types(rows)
        return tuple((column.name, str(column.type)) for column in self.state)

    def __str__(self) -> str:
        emits = "" if self.emits is None else f", emits {self.emits}"
        if self.step is None:
            return f"{self.sessions}{emits})"
        over = "" if self.over is Over.ROW else f", over {self.over}"
        on_time = "" if self.on_time is None else f", on time {self.on_time}"
        state = ", ".join(map(str, self.state))
        return f"ordered({self.step.__qualname__}, state {state}{emits}{over}{on_time})"


def ordered(
    step: Step,
    *,
    state: str,
    emits: str | None = None,
    over: str = Over.ROW,
    on_time: str | None = None,
) -> Ordered:
    """Folds the rows of one key, in the order of the log, with a Python function.

    `step(state, row)` is called with the key's `state` and a row that the pipeline's function
    returned. The state is a dict of the columns that `state` declares, which are None at first; the
    step changes the dict in place. The row is a mapping. The mappings that the step returns or
    yields become rows of the table `emits`. The step must not depend on anything except its
    arguments. Rows that come from the same record are in the order of their values. Times must be
    in the years 1 to 9999. For a record with another time the function fails, and `on_error`
    decides what happens to the record.

    `over="keys"` is for steps that compute with whole columns, and is by far the fastest if there
    are many keys. `step(states, rows)` receives two `pyarrow.Table`s. `states` contains a row for
    each key of the batch, with the key's columns and the state's columns. `rows` contains the rows
    of these keys: first all rows of the first key in `states`, then those of the second, and so on,
    each key's rows in the order of the log. The column `_state` of `rows` is the position of the
    row's key in `states`, from 0. The step returns the new states as a table, or `states, emitted`.
    The table of the new states must contain the state's columns, and a row for each key, in the
    order of `states`; the key's columns are ignored. This table may be of any library that supports
    Arrow (pandas, Polars, DuckDB).

    `over="arrow"` and `over="pandas"` are for steps that compute with many rows of one key at once.
    The step is called as `step(state, rows)`. `rows` is a `pyarrow.Table`, or a `pandas.DataFrame`
    with Arrow types, that contains rows of one key in the order of the log; the emitted rows may
    have the same form. A batch of any kind may end after any row, so the step must be able to
    continue from its state alone. The check of the law of slices finds a step that cannot do this.

    `on_time` names a timestamp column of the state. The step sets this column to the time at which
    the step is to be woken. When the log of the key's partition has reached that time, `step(state,
    None)` is called, between two records. The step must then set the column to None or to a later
    time. With `on_time`, the state also contains the key's columns in every call, since a wake-up
    has no row that contains them. The clock is the greatest timestamp so far of any record in the
    partition; so if there are no records, no time passes. The rows must have `_log_time`. Raises
    DeclarationError, with the user's line, if the declaration is not valid.

    Example:
        def visit(state, row):
            state["visits"] = (state["visits"] or 0) + 1
            if state["visits"] == 100:
                yield {"visitor": row["visitor"], "offset": row["_offset"]}

        Table(
            "visitors",
            keys=("visitor",),
            fold=ordered(visit, state="visits bigint", emits="regulars"),
        )
        Table("regulars", emitted="visitor string, offset bigint")

        import pyarrow.compute as pc

        def count_visits(states, rows):
            counts = pc.value_counts(rows["_state"]).field("counts")
            return states.set_column(
                states.column_names.index("visits"),
                "visits",
                pc.add(pc.fill_null(states["visits"], 0), counts),
            )

        Table(
            "visit_counts",
            keys=("visitor",),
            fold=ordered(count_visits, state="visits bigint", over="keys"),
        )

        from datetime import timedelta

        def silence(state, row):
            if row is None:
                yield {"visitor": state["visitor"], "since": state["last"]}
                state["wake_at"] = None
            else:
                state["last"] = row["_timestamp"]
                state["wake_at"] = row["_timestamp"] + timedelta(minutes=10)

        Table(
            "watched",
            keys=("visitor",),
            fold=ordered(
                silence,
                state="last timestamp, wake_at timestamp",
                emits="silences",
                on_time="wake_at",
            ),
        )
        Table("silences", emitted="visitor string, since timestamp")
    """
    source = Source.of_caller()
    # Workers import the step by its name, and the fingerprint follows that name to its code.
    if not inspect.isfunction(step) or "." in step.__qualname__ or step.__name__ == "<lambda>":
        called = getattr(step, "__qualname__", describe_value(step))
        raise DeclarationError(
            f"{source}: {called} is not a step of an ordered fold",
            hint="give a function at the top level of a file",
        )
    if over not in tuple(Over):
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} is called over {option_text(over)}",
            hint='over is "row", "keys", "arrow" or "pandas"',
        )
    if not isinstance(emits, str | None):
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} emits {describe_value(emits)}, which is no "
            "name",
            hint='give the table by its name: emits="regulars"',
        )
    columns = plain_columns(source, f"the state of {step.__qualname__}", state)
    if on_time is not None:
        _check_on_time(source, step, columns, on_time, Over(over))
    return Ordered(step, columns, emits, Over(over), on_time)


def _check_on_time(
    source: Source, step: Step, state: tuple[Column, ...], on_time: object, over: Over
) -> None:
    times = [column.name for column in state if column.type == Scalar("timestamp")]
    if on_time not in times:
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} is woken by {option_text(on_time)}, "
            "which is not a timestamp of its state",
            hint=f"on_time names one of them: {', '.join(times)}"
            if times
            else 'let the state have one: state="..., wake_at timestamp", on_time="wake_at"',
        )
    if over is not Over.ROW:
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} is woken on time, and is called over {over}",
            hint="a time may pass between any two rows: leave over out, and take them one by one",
        )


def plain_columns(source: Source, what: str, ddl: str) -> tuple[Column, ...]:
    """Parses the columns of a state or of emitted rows from DDL.

    Each column may have only a name and a type. Raises DeclarationError if the DDL is not valid, or
    if a column is declared with more than a name and a type. The message begins with the line of
    the declaration and `what`.
    """
    if not isinstance(ddl, str):
        raise DeclarationError(
            f"{source}: {what} has {describe_value(ddl)} for its columns, which is not text",
            hint='write columns as text: "visits bigint, happened_at timestamp"',
        )
    with error_prefix(f"{source}: {what}"):
        columns = parse_columns(ddl)
    for column in columns:
        if str(column) != f"{column.name} {column.type}":
            raise DeclarationError(
                f"{source}: {what} has the column {column}, and what a step leaves out is null",
                hint=f"write {column.name} {column.type}, and give it its value in the step",
            )
    return columns
