"""Readers of the records of a slice, from the log or from an archive.

This package makes no decisions about records; `kappa/records/decode` decodes them. Read the modules
in this order:

- source.py: exact ranges of the log, and the tail's stream with its bounds
- archive_reader.py: a slice's records from the archive of their topic
- identities.py: the memory of identities with which a slice is decoded
"""

__all__ = ["archive_reader", "source"]
