"""All kinds of folds, by the name that birth certificates have. A new kind is one line here."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.folds.fold import Fold, Option
from kappa.folds.kinds.average import Average
from kappa.folds.kinds.booleans import And, Or
from kappa.folds.kinds.count import Count
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
        *(DistinctSet, TopK, Hll, Theta, Kll),
    )
}


def fold_of(kind: str, column: str | None, options: Mapping[str, Option]) -> Fold:
    """Returns the fold that a birth certificate names."""
    return KINDS[kind](column, tuple(options.items()))
