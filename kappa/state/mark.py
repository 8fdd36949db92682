"""The mark in every commit of a build's table: the offsets up to which the table has folded.

A mark also counts the outcomes of the folded records. A mark is stored only as the `userMetadata`
of the Delta commit; every commit repeats the mark, including the commits of maintenance. A job
computes its frontiers from the marks of its tables. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from kappa.base.errors import Damaged
from kappa.declare.values.tally import Tally
from kappa.state.documents import plain_value, value_of_plain
from kappa.state.offsets import Offsets
from kappa.state.witness import Witnesses


class Mark(Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """The mark of a table's commit: the slice that the table has folded last, and totals.

    `start` and `end` are the offsets of the slice. The mark of a new table contains the build's
    origin as both, and -1 as `leg` and `slice`. `log_time` is the running maximum of the broker's
    timestamp, in milliseconds. `tally` counts the offsets since the origin by outcome. `witnesses`
    contains the last records that were read. `log_time`, `tally` and `witnesses` are per topic and
    partition, and include this slice.
    """

    build: str
    table: str
    leg: int
    slice: int
    start: Offsets
    end: Offsets
    log_time: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tally: Mapping[str, Mapping[int, Tally]] = field(default_factory=dict)
    witnesses: Witnesses = field(default_factory=dict)
    format: int = 1

    def to_json(self) -> str:
        """Returns the mark as JSON text, in the form in which a commit stores it as metadata."""
        return msgspec.json.encode(self, enc_hook=plain_value).decode()

    @property
    def place(self) -> tuple[int, int, int]:
        """Returns a sort key for the marks of a build: leg, slice, and number of folded offsets."""
        return self.leg, self.slice, self.end.distance(Offsets())

    def of_table(self, table: str) -> Mark:
        """Returns a copy of this mark for a commit of the table `table`, with the same slice."""
        return msgspec.structs.replace(self, table=table)


_MARKS = msgspec.json.Decoder(Mark, dec_hook=value_of_plain)


def origin_mark(build: str, at: Offsets) -> Mark:
    """Returns the mark of a new table that has not folded any records, at the offsets `at`."""
    return Mark(build=build, table="", leg=-1, slice=-1, start=at, end=at)


def parse_mark(text: Any, *, where: str) -> Mark:
    """Parses the mark of a table's commit from JSON. Raises Damaged if `text` is not a mark.

    `where` names the commit in the error.
    """
    if not isinstance(text, str):
        raise Damaged(
            f"{where} carries no mark of Kappa",
            hint="another program has written to the table; kappa replay makes a new build of it",
        )
    try:
        return _MARKS.decode(text)
    except ValueError as error:
        raise Damaged(f"{where} carries a mark that cannot be read: {text[:200]}") from error
