"""Maintained views: the rows of their queries, and which of the stored ones differ.

This room opens DuckDB for empty tables alone: the job that stores the rows computes them
(kappa/engine/views/maintained.py). Read in this order:

- served.py: DuckDB's query for the rows of a table's files
- trees.py: the names in a query
- types.py: Spark's names for DuckDB's types
- births.py: maintained views as the tables of a build
- changes.py: the query for the rows that have changed
"""
