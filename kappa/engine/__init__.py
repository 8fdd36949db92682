"""The engine: it folds slices by Spark, from offsets to commits.

Its folders, in a slice's order:

- spark/: sessions: how a JVM starts, on this machine or a cluster
- read/: from offsets to records as they are in the log
- function/: the user's function over a decoded slice
- fold/: from contributions to rows by key
- write/: one commit a table, then one frontier a slice
- views/: maintained views, computed after the tables of a slice
- job/: the process that folds slices for one build
- archive/: a typed copy of a topic's log
- children/: programs of Spark processes that do one thing and end; spares, which wait for a task
"""
