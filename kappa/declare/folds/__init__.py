"""Folds: how the rows of one key become one value. Pure.

There are SQL texts, names and types here, and no Spark. A fold knows no table, no build and no
file. Each kind is one class in one file, with all its meanings; docs/howto/add-a-fold.md is the
recipe for another. Read in this order:

- fold.py: what every fold means at each place, and `MergedFold` for those that a merge can express.
- returned.py: the columns that a function returns, against which a fold is checked.
- exactness.py: how near a fold's values are, and when two of them count as equal (law 8).
- order.py: the order of the log (law 4), and the SQL of "later".
- count.py, sum.py, average.py, extremes.py, booleans.py, picked.py: folds that a merge can express.
- sums.py: sums that overflow nowhere on their way; the sum and the average share it.
- set.py, distinct.py, top.py, sketches.py, quantile.py: folds that are combined with the rows of
  their keys.
- registry.py: the list of all kinds, by the name that birth certificates have.
"""
