"""Answers over exactly the files of a pinned snapshot.

This room writes no file but those of answers; serving/reader runs the SQL. In reading order:

- query.py: one question to one snapshot
- head.py, render.py, saved.py: how its answer is written
- tables.py: the catalogue of what is served
- pair.py: two builds side by side
"""
