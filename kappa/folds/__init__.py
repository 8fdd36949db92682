"""Folds: how the rows of one key become one value. Pure.

This room has SQL texts, names and types, and no Spark. It says what any fold means; each kind is a
class in kinds/. A fold knows no table, no build and no file. Read in this order:

- fold.py: what every fold means at each place, and `MergedFold` for those that a merge can express.
- returned.py: the columns that a function returns, against which a fold is checked.
- exactness.py: how near a fold's values are, and when two of them count as equal (law 8).
- order.py: the order of the log (law 4), and the SQL of "later".
"""
