"""Readers: a DuckDB in memory over exactly the files of some builds, and the SQL it runs.

This package pins nothing and writes no file but folders for spilling. In reading order:

- reader.py: a DuckDB that answers over what was put into it
- opened.py, explained.py, broken.py: how a reader is opened, and its errors as ours
- client.py: who waits for an answer, and may leave before
- relations.py, table_sql.py: tables and views as DuckDB's relations
- checked.py: the files of the tables that a query names are checked first
- views.py: whether a pipeline's own tables bear its views and checks
- repeatable.py, allowed.py: the SQL that a view, and a stranger, may use
"""
