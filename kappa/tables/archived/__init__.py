"""Archives of topics as they are stored.

- stored_archive.py: the Delta table of an archive, as its writer holds it open, and its files.
"""
