"""Maintained views: the analysis of their queries, and the SQL that computes changed rows.

In this package, DuckDB only opens empty tables. The job that stores a view's rows computes the rows
(kappa/engine/views/view_maintenance.py). The first modules parse queries:

- syntax_tree.py: the tree of a query, and its parts
- scopes.py: the columns that a query's `from` clause makes visible
- nulls.py: as-of joins, rewritten so that a null matches nothing
- repeatable_query.py: the parts of a query whose results may differ between two runs
- functional_dependencies.py: the expressions of a select that are equal in all rows in which
  certain other expressions are equal
- ties.py: the `order by` clauses that may leave ties
- exact_rows.py: queries rewritten so that DuckDB returns their values without a loss of precision

The other modules are about views:

- served_rows_sql.py: the DuckDB query for the rows of a table's files
- query_binding.py: a declared query in a form with exactly one meaning
- view_tables.py: maintained views as the tables of a build
- lineage.py: the rows of each table that a view's rows can depend on
- column_sources.py: the columns of tables from which a view computes each of its own columns
- reached_keys.py: the keys of view rows that join with changed rows of a table
- incremental_view.py: counts and sums to which a slice adds its own counts and sums
- ways.py: the method by which slices keep a view up to date
- changes.py: the query for the view rows that have changed
"""

__all__ = [
    "changes",
    "column_sources",
    "exact_rows",
    "incremental_view",
    "nulls",
    "query_binding",
    "served_rows_sql",
    "syntax_tree",
    "view_tables",
    "ways",
]
