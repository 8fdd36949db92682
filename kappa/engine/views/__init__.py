"""The maintained views of a build, and the opening of the build's tables by its job.

- affected_keys.py: the keys of a view that a slice touches
- view_maintenance.py: computes and commits the views after the tables of a slice; also opens the
  tables of a build, with the rows that exist before any slice
"""
