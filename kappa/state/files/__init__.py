"""Objects below a root, on a disk or in a bucket: each is written as a whole or not at all.

This is the only package that uses the library obstore. The name of an object is a path with
slashes, relative to the root. Read the modules in this order:

- disk.py: the protocol of operations on objects, and the implementation for a local folder
- bucket.py: the implementation for a prefix of a bucket, by the S3 protocol
- credentials.py: credentials of a bucket, if they are not in the environment
- claim.py: the claim, which names the host that may change the objects in a bucket
- markers.py: files by which a process notices that an object was written
- address.py: access to a root's files by path or URL, and copies between a host and a bucket
- duckdb_access.py: DuckDB connections that can read a bucket
"""

__all__ = ["address", "bucket", "duckdb_access", "markers"]
