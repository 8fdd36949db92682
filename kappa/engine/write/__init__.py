"""Commits of a slice's rows, and the frontiers that readers see.

The rows of a slice become one commit per table, and a frontier names the versions of these commits.
This package does not run the user's function, and does not decide which slices are folded. A build
has one writer: the holder of the build's lock.

- commit.py: commits a slice's rows to a table, with delta-rs, delta-spark or DuckDB
- recent_rows.py: contributions that are stored next to a large table until they are folded into it
- publisher.py: publishes frontiers, acknowledges holds, and keeps past frontiers for later queries;
  also restores a frontier from the tables' marks if the records of frontiers are lost
- maintenance.py: deletes rows that have expired, joins small files, and deletes files that no
  reader needs
"""
