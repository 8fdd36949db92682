"""The engine: folds slices with Spark, from offsets to commits.

Folders in the order of a slice:

- spark/: sessions: how a JVM starts, on this machine or a cluster
- read/: from offsets to records as the log has them
- function/: the user's function over a decoded slice
- fold/: from contributions to rows by key
- write/: a commit per table, then a frontier per slice
- views/: maintained views, computed after the tables of a slice
- job/: the process that folds the slices of a build
- archive/: a typed copy of a topic's log
- children/: programs of Spark processes that do a single thing and end; spares, which wait
"""
