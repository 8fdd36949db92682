"""The mark that every commit of a build's table carries: how far the table has folded.

It also counts the outcomes of the offsets. It is the `userMetadata` of the Delta commit and the one
owner of that fact (law 3: every commit repeats it). A frontier is made of marks. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from kappa.base.errors import Damaged
from kappa.state.frontier import OffsetsField
from kappa.state.offsets import Offsets
from kappa.state.witness import Witnesses
from kappa.values.tally import Tally


@dataclass(frozen=True, slots=True)
class Mark:
    """The slice that a table folded last; a new table is at its build's origin.

    Its leg and slice are then -1. `log_time` is the running maximum of the broker's timestamp, in
    milliseconds. `tally` counts the outcomes of the offsets since the origin. `witnesses` are the
    last records read. All are per topic and partition and include this slice.
    """

    build: str
    table: str
    leg: int
    slice: int
    start: Annotated[OffsetsField, Field(alias="from")]
    end: Annotated[OffsetsField, Field(alias="to")]
    log_time: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tally: Mapping[str, Mapping[int, Tally]] = field(default_factory=dict)
    witnesses: Witnesses = field(default_factory=dict)
    format: int = 1

    def to_json(self) -> str:
        """Returns the mark as the commit carries it."""
        return _adapter().dump_json(self, by_alias=True).decode()

    @property
    def place(self) -> tuple[int, int, int]:
        """Returns its place among the marks of its build: the more folded, the greater."""
        return self.leg, self.slice, self.end.distance(Offsets())

    def of_table(self, table: str) -> Mark:
        """Returns the mark of the same slice for another table of the build."""
        return replace(self, table=table)


@cache
def _adapter() -> TypeAdapter[Mark]:
    return TypeAdapter(Mark)


def origin_mark(build: str, at: Offsets) -> Mark:
    """Returns the mark of a table at `at` in which no job of its build has folded anything yet."""
    return Mark(build=build, table="", leg=-1, slice=-1, start=at, end=at)


def parse_mark(text: Any, *, where: str) -> Mark:
    """Returns the mark in `text`. Raises Damaged, naming the commit as `where`, if it is none."""
    if not isinstance(text, str):
        raise Damaged(
            f"{where} carries no mark of Kappa",
            hint="another program has written to the table; kappa replay makes a new build of it",
        )
    try:
        return _adapter().validate_python(json.loads(text))
    except (ValueError, ValidationError) as error:
        raise Damaged(f"{where} carries a mark that cannot be read: {text[:200]}") from error
