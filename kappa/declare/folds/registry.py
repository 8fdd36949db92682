"""All kinds of folds, by the names under which birth certificates store them.

A new kind needs one entry in this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.errors import KappaError
from kappa.declare.folds.average import Average
from kappa.declare.folds.booleans import And, Or
from kappa.declare.folds.count import Count
from kappa.declare.folds.distinct import CountDistinct
from kappa.declare.folds.extremes import Max, Min
from kappa.declare.folds.first_latest import First, Latest
from kappa.declare.folds.fold import Fold, Option
from kappa.declare.folds.quantile import Kll
from kappa.declare.folds.sample import RandomSample
from kappa.declare.folds.set import DistinctSet
from kappa.declare.folds.sketches import Hll, Theta
from kappa.declare.folds.sum import Sum
from kappa.declare.folds.top import TopK

KINDS: Mapping[str, type[Fold]] = {
    fold.kind: fold
    for fold in (
        *(Count, Sum, Average, Min, Max, And, Or, First, Latest),
        *(DistinctSet, CountDistinct, TopK, RandomSample, Hll, Theta, Kll),
    )
}


def ensure_known(
    build: str, table: str, fold: Mapping[str, tuple[str, str | None]], version: str | None
) -> None:
    """Raises KappaError if a table of a build has a fold that this release of Kappa does not know.

    `fold` contains the kind and the input column of each served column. `version` is the release of
    Kappa that created the build, or None if it is unknown.
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
    """Creates a fold from the kind, input column and options that a birth certificate stores."""
    return KINDS[kind](column, tuple(options.items()))
