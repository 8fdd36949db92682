"""Tables on disk: shape, merges, and the only package with a door to deltalake.

This package runs no Spark. Read the files in this order:

- shape.py: the columns that a build's tables store, the types, and the served columns.
- merge.py: how contributions fold into the rows of their keys, in SQL of three engines.
- archive.py: the mark of a topic's archive.
- delta.py: Delta tables opened, created and committed to, with deltalake's errors as ours.
- file_list.py: the live files of a version, and the sum by which a frontier vouches for the files.
- versions.py: the files, columns and mark of a table's version.
- parquet.py: Parquet files read as a single dataset.
- stored_table.py: a build's table, held open by the writer.
- mirrored_table.py: a small table of a bucket, committed to on the job's own disk first.
- stored_archive.py: the table and the files of an archive, held open by the writer.
- checkpoint.py: a checkpoint of a table's log, whole or not there.
- lasting.py: waits until a frontier's tables are on the disk, and takes back later commits.
- unneeded.py: the files that no version needs any more.
- branch.py: tables that begin with the rows of another build.
- plain_table.py: a copy of a served table for other engines, as a plain Delta table.
- iceberg.py: plain tables as Iceberg tables over the same files; the only door to pyiceberg.
- views/: maintained views, and parsed queries.
"""

__all__ = [
    "archive",
    "branch",
    "checkpoint",
    "delta",
    "file_list",
    "iceberg",
    "lasting",
    "merge",
    "mirrored_table",
    "parquet",
    "plain_table",
    "shape",
    "stored_archive",
    "stored_table",
    "unneeded",
    "versions",
]
