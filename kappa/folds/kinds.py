"""All kinds of folds, by the name that birth certificates have. A new kind is one line here."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.folds.average import Average
from kappa.folds.booleans import And, Or
from kappa.folds.count import Count
from kappa.folds.extremes import Max, Min
from kappa.folds.fold import Fold, Option
from kappa.folds.picked import First, Latest
from kappa.folds.quantile import Kll
from kappa.folds.set import DistinctSet
from kappa.folds.sketches import Hll, Theta
from kappa.folds.sum import Sum
from kappa.folds.top import TopK

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
