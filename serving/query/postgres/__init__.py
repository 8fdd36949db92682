"""Answers for a Postgres client: rows, types and the catalogue.

The process that runs a query uses this package. The server (serving/postgres) speaks the protocol
and passes the rows on to the client. Read in this order:

- wire.py: the forms in which a client can request rows
- placeholders.py: the parameters in an SQL text, and their replacement by values
- wire_types.py: the Postgres type of each DuckDB type, and values in text and binary form
- rows.py: writes the rows of a query as messages of the protocol, and describes a query
- catalogue.py: the parts of `pg_catalog` and `information_schema` that clients read
- catalogue_sql.py: the relations and functions of that catalogue, as SQL
"""

__all__ = ["catalogue_sql", "placeholders", "wire", "wire_types"]
