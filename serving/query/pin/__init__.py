"""The choice of the builds and frontiers that a reader reads, pinned by a lease.

The moment is now or in the past. This package reads no rows. In reading order:

- snapshot.py: a snapshot of one moment, and the lease that keeps it
- record_cache.py: records of a bucket that never change, each of which a reader reads once
- idle_pins.py: the pin that the next reader of a bucket takes over
- moments.py: moments of the past, by time, generation, offsets or the log's time
- look.py: the two looks, at now or at the past (law 11)
- catalog.py: pins the result of a look
- write_token.py: waiting until readers see what was just written
"""
