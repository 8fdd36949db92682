"""The engine: folds slices with Spark, from offsets to commits.

Read slice.py first. The way of a slice has seven steps:

- slice.py: the steps, in their order: read, decode, judge, apply, combine, commit, publish
- slice_rows.py: the rows of a slice, which alone know where they are
- slice_here.py, slice_at_spark.py: the rows of a small slice in this process, of a large slice at
  Spark

Folders in the order of the steps:

- read/: read: from offsets to records as the log has them
- function/: judge and apply: the user's function over a decoded slice
- fold/: apply and combine: from contributions to rows by key
- write/: commit and publish: a commit per table, then a frontier per slice
- views/: commit: maintained views, computed after the tables of a slice

Folders around the steps:

- job/: the process that folds the slices of a build
- spark/: sessions: how a JVM starts, on this machine or a cluster
- archive/: a typed copy of a topic's log
- children/: programs of Spark processes that do a single thing and end; spares, which wait
"""
