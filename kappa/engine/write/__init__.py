"""Rows become one commit a table, and commits become what readers see.

This package folds nothing and decides no slice. A build has one writer: the holder of its lock.

- commit.py: a slice's rows in one commit, by delta-rs, by delta-spark or by DuckDB
- follows.py: the rule that a slice begins where the frontier ends
- commits.py: how the commits of a slice run beside each other
- spark_commit.py: what delta-spark appends and merges
- rewritten.py: many contributions, folded into a table that is written anew
- recent.py, recent_part.py: contributions that wait beside a large table
- restored.py: a frontier made of the tables' marks, where its records are lost
- publisher.py: the frontier, the hold, and the frontiers of the past that are kept
- maintenance.py: joining small files, and deleting those that no reader needs
- gone.py: deleting rows that have expired
- of_topics.py: the rows of tables that topics fill, also where a source's table was truncated
"""
