"""Readers: a DuckDB in memory over the files of some builds.

A reader can read exactly these files. This package pins nothing, and writes only the temporary
files into which DuckDB spills. Read in this order:

- reader.py: a DuckDB that answers queries, and how it is opened
- errors.py: errors of DuckDB, and relations that cannot be read, as errors of Kappa
- client.py: the client of a query, who may leave before the answer is ready
- relations.py, table_sql.py: tables and views as DuckDB's relations
- query_files.py: the check of the files that a query reads
- views.py: checks that the views of a pipeline, and its declared checks, fit its own tables
- sql_rules.py: the SQL that an untrusted client, a view and a declared check may use
"""

__all__ = ["client", "errors", "reader", "relations", "table_sql", "views"]
