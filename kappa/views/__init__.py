"""Maintained views: the rows of their queries, and which of the stored ones differ.

This room opens DuckDB for empty tables alone: the job that stores the rows computes them
(kappa/engine/views/maintained.py). Read in this order:

- served.py: DuckDB's query for the rows of a table's files
- types.py: Spark's names for DuckDB's types
- births.py: maintained views as the tables of a build
- lineage.py: which rows of each table a view's rows can depend on
- reached.py: the keys that changed rows reach through joins
- by_change.py: counts and sums to which a slice adds its own
- ways.py: the way in which a view is kept
- changes.py: the query for the rows that have changed
"""
