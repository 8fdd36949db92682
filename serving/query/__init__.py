"""Answers of DuckDB over exactly the files of a pinned snapshot.

This room writes no file but those of answers, and folders for spilling. In reading order:

- query.py: one question to one snapshot
- head.py, render.py, saved.py: how its answer is written
- reader.py: a DuckDB that answers over what was put into it
- opened.py, explained.py: how a reader is opened, and its errors as ours
- relations.py, table_sql.py: tables and views as DuckDB's relations
- views.py: whether a pipeline's own tables bear its views and checks
- repeatable.py, allowed.py: the SQL that a view, and a stranger, may use
- tables.py: the catalogue of what is served
- pair.py: two builds side by side
- spill.py: the folders of one process
"""
