"""Folds: how the rows of one key become one value. Pure.

This package produces SQL texts, names and types, and does not use Spark. The folds do not depend on
tables, builds or files. Each kind of fold is one class in one file, which contains everything about
the kind; docs/howto/add-a-fold.md explains how to add another kind. Read the files in this order:

- fold.py: `Fold`, the base class of all folds, and `MergedFold`, the base class of folds that a
  merge can express.
- returned_columns.py: the columns that a function returns, against which a fold is checked.
- exactness.py: how exact a fold's values are, and when two values count as equal.
- order.py: the order of the records in the log, and SQL that compares two positions in this order.
- count.py, sum.py, average.py, extremes.py, booleans.py, first_latest.py: folds that a merge can
  express.
- sums.py: totals that cannot overflow, however many records there are; the sum and the average use
  them.
- sizes.py: the maximum size in bytes of the values that a fold stores in one row.
- set.py, distinct.py, top.py, sample.py, sketches.py, quantile.py: folds that must read the stored
  rows of their keys.
- registry.py: the list of all kinds, by the name in birth certificates.
"""

__all__ = [
    "count",
    "exactness",
    "extremes",
    "first_latest",
    "fold",
    "order",
    "registry",
    "returned_columns",
    "sizes",
    "sum",
    "sums",
]
