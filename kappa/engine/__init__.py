"""The engine, which folds slices of the log into Delta tables with Spark.

Read slice.py first. These files contain the steps of a slice and the slice's rows:

- slice.py: the steps in their order: read, decode, judge, apply, combine, commit,
  publish
- slice_rows.py: the interface of a slice's rows; only the classes that implement this
  interface know whether the rows are in this process or in Spark
- slice_in_process.py: the rows of a small slice, in this process
- slice_in_spark.py: the rows of a large slice, in Spark

Each of these folders contains the code for some of the steps:

- read/ (the step read) reads the log's records between two offsets
- function/ (judge and apply) runs the user's function on a decoded slice
- fold/ (apply and combine) turns contributions into one row per key
- write/ (commit and publish) makes a commit per table, then publishes a frontier per
  slice
- views/ (commit) computes maintained views after the tables of a slice

The other folders are:

- job/: the process that folds the slices of a build
- spark/: sessions, and the start of a session's JVM, on this machine or on a cluster
- archive/: typed copies of topics' logs
- children/: programs that perform a single task in a separate Spark process, and spares
  that wait for a task
"""
