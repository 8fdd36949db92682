"""An ordered fold, as a pipeline's file declares it: a step that is called for each row of a key, or for batches of them, in the order of the log. Pure.

For what counts and sums cannot say: sessions, patterns, balances that refuse to go negative. Read next: engine/fold/ordered.py,
which calls the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.topic import Source
from kappa.values.columns import Column, parse_columns

# Given the state of a key, to change in place, and a row of it or some; what it returns or yields is emitted.
Step = Callable[[dict[str, Any], Any], Any]
# Where the row that was folded last into a key's state stands, and Spark's types. All rows of a key lie in one partition.
PLACE_COLUMNS = (("_topic", "string"), ("_partition", "int"), ("_offset", "bigint"))


class Over(StrEnum):
    """What a step is given at a time: a row as a mapping, or all rows of its key in a slice, as one table or, where they are very many, several."""

    ROW = "row"
    ARROW = "arrow"
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True)
class Ordered:
    """How a table is folded by a step. `state` are the columns it keeps per key; `emits` the table that takes what it emits."""

    step: Step = field(compare=False)
    state: tuple[Column, ...]
    emits: str | None = None
    over: Over = Over.ROW

    @property
    def place(self) -> tuple[str, str]:
        """The module and the name of the step."""
        return self.step.__module__, self.step.__qualname__

    def __str__(self) -> str:
        emits = "" if self.emits is None else f", emits {self.emits}"
        over = "" if self.over is Over.ROW else f", over {self.over}"
        return f"ordered({self.step.__qualname__}, state {', '.join(map(str, self.state))}{emits}{over})"


def ordered(step: Step, *, state: str, emits: str | None = None, over: str = Over.ROW) -> Ordered:
    """Folds rows of one key, in the order of the log, by a Python function: `Table(..., keys=..., fold=ordered(step, state="failed int"))`.

    `step(state, row)` gets the key's state as a dict of these columns (all None at first), which it changes in place, and a
    row of the function as a mapping; the mappings that it returns or yields are rows of the table `emits`. It may look at
    nothing else. Rows of one record come in the order of their values.

    `over="arrow"` and `over="pandas"` are for steps that compute with many rows at once: the step gets a `pyarrow.Table`, or a
    `pandas.DataFrame` of Arrow's types, of rows of one key in the same order, and may return such a one. Where a batch ends is an
    accident of the slice, so the step must go on from its state as if there were none; the law of slices finds one that does not.
    Raises DeclarationError, with the user's line.
    """
    source = Source.of_caller()
    # Workers import it by its name, and the fingerprint follows that name to its code.
    if not inspect.isfunction(step) or "." in step.__qualname__ or step.__name__ == "<lambda>":
        raise DeclarationError(
            f"{source}: {getattr(step, '__qualname__', repr(step))} is no step of an ordered fold",
            hint="give a function that stands at the top of a file",
        )
    if over not in set(Over):
        raise DeclarationError(
            f"{source}: the step {step.__qualname__} is called over {over!r}",
            hint='over is "row", "arrow" or "pandas"',
        )
    return Ordered(
        step, plain_columns(source, f"the state of {step.__qualname__}", state), emits, Over(over)
    )


def plain_columns(source: Source, what: str, ddl: str) -> tuple[Column, ...]:
    """Columns of values that a step makes: names and types alone. Raises DeclarationError, which begins with the line and `what`."""
    try:
        columns = parse_columns(ddl)
    except DeclarationError as error:
        raise DeclarationError(f"{source}: {what}: {error.message}", hint=error.hint) from None
    for column in columns:
        if str(column) != f"{column.name} {column.type}":
            raise DeclarationError(
                f"{source}: {what} has the column {column}, and what a step leaves out is null",
                hint=f"say {column.name} {column.type}, and give it its value in the step",
            )
    return columns
