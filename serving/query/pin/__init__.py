"""The choice of the builds and frontiers that a reader reads, pinned by a lease.

The moment is now or in the past. This package reads no rows. In reading order:

- snapshot.py: a snapshot of one moment, and the lease that keeps it
- remembered.py: records of a bucket that never change, each of which a reader reads once
- left.py: the pin that a reader of a bucket has left for the next one
- look.py: the two looks, at now or at the past (law 11)
- catalog.py: pins the result of a look
- past.py: moments of the past, by time or by generation
- at_log.py: moments of the past, by offsets or by the log's time
- after.py: waiting until readers see what was just written
"""
