"""The tables of a build as opened by its job, and the build's maintained views.

- touched.py: the keys of a view that a slice touches
- maintained.py: the views, computed after the tables of a slice and committed beside the tables;
  the tables of a build, opened with the rows that exist before any slice
"""
