"""Parsed queries: their parts, and whether their rows follow from their tables.

Read in this order:

- trees.py: a query's tree and its parts
- scopes.py: the columns that a query's `from` clause makes visible
- nulls.py: as-of joins, in which no null is equal to anything
- exact.py: what of a query may give other rows each time
- alike.py: what is the same in all rows of a select that are alike in something
- ties.py: orders that may leave ties
- exact_rows.py: a query as its rows leave DuckDB without a loss
"""
