"""The choice of the builds and frontiers that a reader reads, now or in the past.

A lease pins the chosen frontiers. This package reads no rows. Read in this order:

- snapshot.py: a snapshot of one moment, and the lease that keeps its files
- pin_places.py: the limits on the snapshots that clients pin
- shared_pins.py: the pinned snapshot that readers of a process share until the frontier moves
- moments.py: moments of the past, by time, generation, offsets or the log's time
- snapshot_reads.py: reads the serving builds before and after the lease is written
- catalog.py: pins the snapshot that was read
- write_token.py: waits until readers see a write
"""

__all__ = ["catalog", "moments", "pin_places", "snapshot", "snapshot_reads", "write_token"]
