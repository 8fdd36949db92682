"""Objects below a root, put whole or not at all, on a disk or in a bucket: obstore's door.

A name is a path with slashes, relative to the root. Read in this order:

- disk.py: what both kinds of root can do, and a folder of a local disk
- bucket.py: a prefix of a bucket, by the S3 protocol
- credentials.py: credentials of a bucket, where the environment has none
- claim.py: which host may change what is in a bucket
- markers.py: how a watcher knows that something was put
- address.py: files of a root by path or URL, for tables; and files that this host writes for a
  root, or takes from it
- duckdb_access.py: how DuckDB reads a bucket
"""

__all__ = ["address", "bucket", "duckdb_access", "markers"]
