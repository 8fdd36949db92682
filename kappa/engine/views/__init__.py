"""The tables of a build as its job opens them, and the build's maintained views.

- affected_keys.py: the keys of a view that a slice touches
- view_maintenance.py: the views, computed after the tables of a slice and committed too; also opens
  the tables of a build, with the rows that exist before any slice
"""
