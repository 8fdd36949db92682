"""Folds: how the rows of one key become one value. Pure.

This package has SQL texts, names and types, and does not use Spark. A fold knows no table, no build
and no file. Each kind is one class in one file, with all meanings of the kind;
docs/howto/add-a-fold.md is the recipe for another kind. Read in this order:

- fold.py: the meanings of every fold, by the place of use, and `MergedFold` for folds that a merge
  can express.
- returned.py: the columns that a function returns, against which a fold is checked.
- exactness.py: how near a fold's values are, and when two values count as equal (law 8).
- order.py: the order of the log (law 4), and the SQL of "later".
- count.py, sum.py, average.py, extremes.py, booleans.py, picked.py: folds that a merge can express.
- sums.py: totals, which no number of records can overflow; the sum and the average share totals.
- sizes.py: how many bytes the values of one row may have.
- set.py, distinct.py, top.py, sketches.py, quantile.py: folds that must read the stored rows of
  their keys.
- registry.py: the list of all kinds, by the name in birth certificates.
"""

__all__ = [
    "count",
    "exactness",
    "extremes",
    "fold",
    "order",
    "picked",
    "registry",
    "returned",
    "sizes",
    "sum",
    "sums",
]
