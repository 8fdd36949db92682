"""Tables on disk: their columns, merges and files. Only this package imports deltalake.

This package runs no Spark. Read the files in this order:

- shape.py: the columns that a build's tables store, and the types of these columns.
- merge.py: SQL that folds contributions into the rows of their keys, for three engines.
- archive.py: the mark of a topic's archive, with the offsets that the archive covers.
- delta.py: opens, creates and commits to Delta tables, and converts deltalake's errors to ours.
- file_list.py: the live files of a version, and the checksum of this list for the frontier.
- versions.py: the files, columns and mark of a table's version.
- parquet.py: Parquet files read as a single dataset.
- stored_table.py: a build's table, opened by the job that writes it.
- mirrored_table.py: a small table in a bucket, with a mirror on the job's own disk.
- stored_archive.py: the table and the files of an archive, opened by the process that writes them.
- checkpoint.py: writes checkpoints of a table's log, each complete or absent.
- durable_versions.py: waits until a frontier's tables are on the disk, and deletes later commits.
- vacuum.py: deletes the files that no version needs any more.
- branch.py: creates tables with the rows of another build.
- plain_table.py: a copy of a served table for other engines, as a plain Delta table.
- iceberg.py: plain tables as Iceberg tables over the same files. Only iceberg.py imports pyiceberg.
- views/: maintained views, and parsed queries.
"""

__all__ = [
    "archive",
    "branch",
    "checkpoint",
    "delta",
    "durable_versions",
    "file_list",
    "iceberg",
    "merge",
    "mirrored_table",
    "parquet",
    "plain_table",
    "shape",
    "stored_archive",
    "stored_table",
    "vacuum",
    "versions",
]
