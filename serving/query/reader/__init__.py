"""Readers: a DuckDB in memory over exactly the files of some builds, and the SQL it runs.

This package pins nothing and writes no file but folders for spilling. In reading order:

- reader.py: a DuckDB that answers over what was put into it, and how it is opened
- errors.py: DuckDB's errors, and relations that cannot be read, as errors of Kappa
- client.py: who waits for an answer, and may leave before
- relations.py, table_sql.py: tables and views as DuckDB's relations
- query_files.py: the files of the tables that a query names are checked first
- views.py: whether a pipeline's own tables bear its views and checks
- sql_rules.py: the SQL that a stranger, a view and a check may use
"""
