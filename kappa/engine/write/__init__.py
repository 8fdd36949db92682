"""Commits of a slice's rows, and the frontiers that readers see.

A slice's rows become one commit per table, and the commits become a frontier. This package folds
nothing and decides no slice. A build has one writer: the holder of the build's lock.

- commit.py: commits a slice's rows to a table, by delta-rs, by delta-spark or by DuckDB
- recent.py: contributions that wait beside a large table
- publisher.py: the frontier, the hold, and the kept frontiers; a frontier made of the tables' marks
  if its records are lost
- maintenance.py: deletes rows that have expired, joins small files, and deletes files that no
  reader needs
"""
