"""Reading: from offsets to a slice's records.

The records are of the log or of an archive. This package decides nothing about records: decoding is
`kappa/records/decode`. Read in this order:

- `source.py`: exact ranges of the log, and the stream of the tail with its bounds.
- `archived.py`: a slice's records from the archive of their topic.
- `identities.py`: the memory of identities that a slice is decoded with.
"""

__all__ = ["archived", "source"]
