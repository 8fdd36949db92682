"""Each kind of fold: one class in one file, with all its meanings. Pure.

docs/howto/add-a-fold.md is the recipe for another. Read in this order:

- count.py, sum.py, average.py, extremes.py, booleans.py, picked.py: folds that a merge can express.
- sums.py: sums that overflow nowhere on their way; the sum and the average share it.
- set.py, distinct.py, top.py, sketches.py, quantile.py: folds that are combined with the rows of
  their keys.
- registry.py: the list of all kinds, by the name that birth certificates have.
"""
