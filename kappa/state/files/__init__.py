"""Objects below a root, on a disk or in a bucket: each is written as a whole or not at all.

This is the only package that uses obstore. A name is a path with slashes, relative to the root.
Read the modules in this order:

- disk.py: the operations of both kinds of root, and their implementation for a local folder
- bucket.py: their implementation for a prefix of a bucket, by the S3 protocol
- credentials.py: credentials of a bucket, if they are not in the environment
- claim.py: which host may change the objects in a bucket
- markers.py: how a watcher notices that something was written
- address.py: files of a root by path or URL, for tables; and files that this host writes for a
  root, or copies from it
- duckdb_access.py: how DuckDB reads a bucket
"""

__all__ = ["address", "bucket", "duckdb_access", "markers"]
