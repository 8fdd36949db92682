"""An ordered fold, as a pipeline's file declares it: a step for the rows of a key. Pure.

The step is called for each row, or for batches of them, in the order of the log. It computes what
counts and sums cannot: sessions, patterns, balances that must not be negative. The caller of the
step is engine/fold/ordered.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.values.columns import Column, parse_columns

# Gets the state of a key, to change in place, and rows of it; the rows it returns are emitted.
Step = Callable[[dict[str, Any], Any], Any]
# The place of the row that was folded last into a key's state, with Spark's types. All rows of a
# key are in one partition.
PLACE_COLUMNS = (("_topic", "string"), ("_partition", "int"), ("_offset", "bigint"))


class Over(StrEnum):
    """The argument of a step: a row, or a batch of its key's rows in a slice.

    A row is a mapping. A batch is all of them, or several tables if they are very many.
    """

    ROW = "row"
    ARROW = "arrow"
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True)
class Ordered:
    """A fold by a step: `state` are its columns per key, `emits` the table of emitted rows."""

    step: Step = field(compare=False)
    state: tuple[Column, ...]
    emits: str | None = None
    over: Over = Over.ROW

    @property
    def place(self) -> tuple[str, str]:
        """Returns the module and the name of the step."""
        return self.step.__module__, self.step.__qualname__

    def __str__(self) -> str:
        emits = "" if self.emits is None else f", emits {self.emits}"
        over = "" if self.over is Over.ROW else f", over {self.over}"
        state = ", ".join(map(str, self.state))
        return f"ordered({self.step.__qualname__}, state {state}{emits}{over})"


def ordered(step: Step, *, state: str, emits: str | None = None, over: str = Over.ROW) -> Ordered:
    """Folds rows of one key, in the order of the log, by a Python function.

    `step(state, row)` gets the key's `state` and a row of the function. The state is a dict of
    these columns, all None at first, which the step changes in place. The row is a mapping. The
    mappings that the step returns or yields are rows of the table `emits`. The step may depend on
    nothing else. Rows of one record are in the order of their values.

    `over="arrow"` and `over="pandas"` are for steps that compute with many rows at once. The step
    gets a `pyarrow.Table`, or a `pandas.DataFrame` of Arrow's types, with rows of one key in the
    same order, and may return one. A batch may end anywhere, so the step must go on from its state
    alone; the law of slices finds a step that does not. Raises DeclarationError, with the user's
    line.

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
    """
    source = Source.of_caller()
    # Workers import it by its name, and the fingerprint follows that name to its code.
    if not inspect.isfunction(step) or "." in step.__qualname__ or step.__name__ == "<lambda>":
        called = getattr(step, "__qualname__", described(step))
        raise DeclarationError(
            f"{source}: {called} is no step of an ordered fold",
            hint="give a function at the top level of a file",
        )
    if over not in tuple(Over):
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} is called over {shown(over)}",
            hint='over is "row", "arrow" or "pandas"',
        )
    if not isinstance(emits, str | None):
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} emits {described(emits)}, which is no name",
            hint='give the table by its name: emits="regulars"',
        )
    return Ordered(
        step, plain_columns(source, f"the state of {step.__qualname__}", state), emits, Over(over)
    )


def plain_columns(source: Source, what: str, ddl: str) -> tuple[Column, ...]:
    """Reads columns of a step's values, which have names and types alone.

    Raises DeclarationError, which begins with the line and `what`.
    """
    if not isinstance(ddl, str):
        raise DeclarationError(
            f"{source}: {what} has {described(ddl)} for its columns, which is no text",
            hint='write columns as text: "visits bigint, at timestamp"',
        )
    try:
        columns = parse_columns(ddl)
    except DeclarationError as error:
        raise DeclarationError(f"{source}: {what}: {error.message}", hint=error.hint) from None
    for column in columns:
        if str(column) != f"{column.name} {column.type}":
            raise DeclarationError(
                f"{source}: {what} has the column {column}, and what a step leaves out is null",
                hint=f"write {column.name} {column.type}, and give it its value in the step",
            )
    return columns
