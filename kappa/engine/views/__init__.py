"""The maintained views of a build, kept by its job.

- touched.py: the keys of a view that a slice touches
- maintained.py: computed after the tables of a slice, and committed beside them
"""
