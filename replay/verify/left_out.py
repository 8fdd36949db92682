"""What a proof leaves out of its hash, and within what two of it are equal (law 8). Pure: who only tells of proofs needs no more."""

from __future__ import annotations

from kappa.declare.table import CLOSE, Exactness
from kappa.state.build import TableBirth

_WHY = {Exactness.ROUNDED: "a sum of doubles", Exactness.APPROXIMATE: "an approximate quantile"}
_WITHIN = {
    _WHY[Exactness.ROUNDED]: f"{CLOSE:g}",
    _WHY[Exactness.APPROXIMATE]: "the error of its sketch",
}


def left_out_of(table: TableBirth) -> dict[str, str]:
    """The columns of a table that another order of the same rows, or chance, may make others, and what they are."""
    return {
        column: _WHY[table.exactness(column)]
        for column in table.fold
        if table.exactness(column) in _WHY
    }


def within(why: str) -> str:
    """Within what two values of such a column are equal, by what it is."""
    return _WITHIN[why]
