"""Commits of a slice's rows, and the frontiers that readers see.

A slice's rows become one commit per table, and the commits become a frontier. This package folds
nothing and decides no slice. A build has one writer: the holder of the build's lock.

- commit.py: commits a slice's rows to a table, by delta-rs, by delta-spark or by DuckDB
- follows.py: the rule that a slice begins where the frontier ends
- commits.py: runs the commits of a slice in parallel
- spark_commit.py: the appends and merges of delta-spark
- rewritten.py: folds many contributions into a table that is written anew
- recent.py, recent_part.py: contributions that wait beside a large table
- restored.py: makes a frontier from the tables' marks if the frontier's records are lost
- publisher.py: the frontier, the hold, and the kept frontiers
- maintenance.py: joins small files, and deletes files that no reader needs
- gone.py: deletes rows that have expired
- of_topics.py: the rows of tables that topics fill, also where a source's table was truncated
"""
