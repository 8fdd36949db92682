"""Queries over exactly the files of a pinned snapshot, and their answers.

The only files that this package writes are files of answers. Read in this order:

- pin/: chooses the builds and frontiers that a reader reads, and pins them by a lease
- reader/: a DuckDB in memory over the files of some builds, and the SQL that DuckDB runs
- query.py: a query over a snapshot, with its answer as values or as a file; a reader of two builds
  for a comparison
- statements.py: the statements of an SQL text
- session.py: many queries of one person over a snapshot that stays pinned
- render.py: values as text, in a table, JSON or CSV
- overflows.py: the rows whose folded values do not fit their type
- tables.py: the catalogue of the served tables and views
- rejects.py: the rejects of the live builds, or of a single build
- redrive.py: the export of rejects as lines, and the records to produce for corrected lines
- postgres/: rows and the catalogue for a Postgres client
- sandbox/: untrusted SQL: each query runs in its own confined process
"""

__all__ = [
    "overflows",
    "query",
    "redrive",
    "rejects",
    "render",
    "session",
    "statements",
    "tables",
]
