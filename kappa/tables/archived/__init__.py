"""Archives of topics on disk.

- stored_archive.py: the Delta table of an archive, as its writer holds it open, and its files.
"""
