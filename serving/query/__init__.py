"""Answers of DuckDB over exactly the files of a pinned snapshot. Writes nothing but files of answers.

- query.py: one question to one snapshot; head.py, render.py, saved.py: how its answer is written
- reader.py, opened.py, explained.py: a DuckDB, how it is opened, its errors
- relations.py, table_sql.py: tables and views as DuckDB's relations
- views.py, repeatable.py, allowed.py: what a view, and what a stranger, may say
- tables.py: the catalogue of what is served; pair.py: two builds side by side; spill.py: folders
"""
