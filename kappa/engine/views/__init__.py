"""The maintained views of a build, kept by its job.

- maintained.py: computed after the tables of a slice, and committed beside them
"""
