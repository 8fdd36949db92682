"""Spark and a root in a bucket: what a session needs to read and to write tables there.

- `s3a.py`: Spark's name for a file of a bucket, its settings, and the store of Delta's logs
"""
