"""Tables on disk: their shape, their merges, and the only door to deltalake.

This room runs no Spark. Read in this order:

- shape.py: which columns a build's tables store, of which type, and which are served.
- merge.py: how contributions fold into the rows of their keys, in SQL of three engines.
- archive.py: the mark of a topic's archive.
- delta.py: tables and archives, opened, committed to, listed and kept small.
- branch.py: tables that begin with the rows of another build.
"""
