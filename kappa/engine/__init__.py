"""The engine, which folds slices with Spark: it reads offsets, and commits rows to Delta tables.

Read slice.py first. A slice takes seven steps:

- slice.py: the steps in their order: read, decode, judge, apply, combine, commit, publish
- slice_rows.py: the rows of a slice; only these classes know which process has the rows
- slice_in_process.py: the rows of a small slice, in this process
- slice_in_spark.py: the rows of a large slice, in Spark

The folders for the steps:

- read/ (read): from offsets to the records in the log
- function/ (judge and apply): the user's function on a decoded slice
- fold/ (apply and combine): from contributions to rows by key
- write/ (commit and publish): a commit per table, then a frontier per slice
- views/ (commit): maintained views, computed after the tables of a slice

The other folders:

- job/: the process that folds the slices of a build
- spark/: sessions, and how their JVM starts, on this machine or on a cluster
- archive/: typed copies of topics' logs
- children/: programs for a single task in a Spark process of its own, and spares that wait for a
  task
"""
