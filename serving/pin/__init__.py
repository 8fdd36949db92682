"""Which builds and frontiers a reader reads, pinned by a lease, now or in the past. Reads no rows.

- snapshot.py: what readers see at one moment, and how it is kept
- look.py: the two looks, at now or at the past (law 11)
- catalog.py: pins what a look found
- past.py, at_log.py: moments of the past, by time or generation, and by the log
"""
