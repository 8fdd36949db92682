"""The tables of a build as its job opens them, and its maintained views.

- touched.py: the keys of a view that a slice touches
- opened.py: the tables of a build, with the rows that they have before any slice
- maintained.py: computed after the tables of a slice, and committed beside them
"""
