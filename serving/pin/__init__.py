"""Which builds and frontiers a reader reads, pinned by a lease, now or in the past."""
