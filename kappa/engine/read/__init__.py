"""Readers of the records of a slice, from the log or from an archive.

This package makes no decisions about records; `kappa/records/decode` decodes them. Read the modules
in this order:

- source.py: exact ranges of the log, and the tail's stream with the ends of its
  micro-batches
- archive_reader.py: a slice's records from the archive of their topic
- identities.py: the identities that a build remembers when it decodes a slice
"""

__all__ = ["archive_reader", "source"]
