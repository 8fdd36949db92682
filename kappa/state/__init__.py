"""What a root keeps of its builds: births, frontiers, leases, offsets. The store is the only door to obstore."""
