"""Readers: a DuckDB in memory over the files of some builds.

A reader has exactly these files, and this package has the SQL that DuckDB runs. This package pins
nothing and writes no file but folders for spilling. In reading order:

- reader.py: a DuckDB that answers queries, and how such a DuckDB is opened
- errors.py: DuckDB's errors, and relations that cannot be read, as errors of Kappa
- client.py: who waits for an answer, and may leave before
- relations.py, table_sql.py: tables and views as DuckDB's relations
- query_files.py: the check of the files that a query reads
- views.py: whether a pipeline's views and checks fit its own tables
- sql_rules.py: the SQL that a stranger, a view and a check may use
"""

__all__ = ["client", "errors", "reader", "relations", "table_sql", "views"]
