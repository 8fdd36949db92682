"""All kinds of folds, by the name that birth certificates have. A new kind is one line here."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.errors import KappaError
from kappa.folds.fold import Fold, Option
from kappa.folds.kinds.average import Average
from kappa.folds.kinds.booleans import And, Or
from kappa.folds.kinds.count import Count
from kappa.folds.kinds.distinct import CountDistinct
from kappa.folds.kinds.extremes import Max, Min
from kappa.folds.kinds.picked import First, Latest
from kappa.folds.kinds.quantile import Kll
from kappa.folds.kinds.set import DistinctSet
from kappa.folds.kinds.sketches import Hll, Theta
from kappa.folds.kinds.sum import Sum
from kappa.folds.kinds.top import TopK

KINDS: Mapping[str, type[Fold]] = {
    fold.kind: fold
    for fold in (
        *(Count, Sum, Average, Min, Max, And, Or, First, Latest),
        *(DistinctSet, CountDistinct, TopK, Hll, Theta, Kll),
    )
}


def ensure_known(
    build: str, table: str, fold: Mapping[str, tuple[str, str | None]], version: str | None
) -> None:
    """Raises KappaError if a build's table has a fold that this Kappa does not know.

    `fold` has the kind and the input of each column.
    """
    for column, (kind, _) in fold.items():
        if kind not in KINDS:
            raise KappaError(
                f"build {build} was made by a newer Kappa{f' ({version})' if version else ''}: "
                f"its table {table} folds {column} by {kind!r}, which this one does not know",
                hint=f"pip install kappa=={version}, or a newer one"
                if version
                else "install the Kappa that made it, or a newer one",
            )


def fold_of(kind: str, column: str | None, options: Mapping[str, Option]) -> Fold:
    """Returns the fold that a birth certificate names."""
    return KINDS[kind](column, tuple(options.items()))
