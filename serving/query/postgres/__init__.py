"""Answers for a Postgres client: rows, types and the catalogue, in the worker of a query.

The server (serving/postgres) speaks the protocol and passes these rows on. Read in this order:

- wire.py: the way in which a client wants its rows, as a value
- placeholders.py: the parameters of a text, and the text with values in their places
- wire_types.py: the Postgres type of each DuckDB type, and values in text and binary form
- rows.py: writes the rows of a query as messages of the protocol, and describes a query
- catalogue.py: `pg_catalog` and `information_schema` as far as clients look
- catalogue_sql.py: the relations and functions of that catalogue, as SQL
"""

__all__ = ["catalogue_sql", "placeholders", "wire", "wire_types"]
