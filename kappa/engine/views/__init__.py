"""The maintained views of a build, and the function that opens the tables of a build for its job.

- affected_keys.py: the keys of a view that a slice touches
- view_maintenance.py: computes and commits the views after the tables of a slice; also opens the
  tables of a build, and creates missing tables with the rows that exist before any slice
"""
