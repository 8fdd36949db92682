"""Maintained views: the rows of their queries, and the stored rows that differ.

DuckDB is opened here for empty tables alone: the job that stores a view's rows computes the rows
(kappa/engine/views/maintained.py). Parsed queries come first:

- trees.py: a query's tree, taken apart
- scopes.py: the columns that a query's `from` clause makes visible
- nulls.py: as-of joins, in which no null is equal to anything
- exact.py: the parts of a query that may give other rows each time
- alike.py: the expressions that are equal in all rows of a select that share some values
- ties.py: orders that may leave ties
- exact_rows.py: a query whose rows leave DuckDB without a loss

Then views:

- served.py: DuckDB's query for the rows of a table's files
- bound.py: the only meaning of a declared text
- births.py: maintained views as the tables of a build
- lineage.py: the rows of each table that a view's rows can depend on
- column_sources.py: the columns from which a view computes each of its columns
- reached.py: the keys that changed rows reach through joins
- by_change.py: counts and sums to which a slice adds its own
- ways.py: the way in which a view is kept
- changes.py: the query for the rows that have changed
"""

__all__ = [
    "births",
    "bound",
    "by_change",
    "changes",
    "column_sources",
    "exact_rows",
    "nulls",
    "served",
    "trees",
    "ways",
]
