"""What a root keeps of its builds. The store is the only door to obstore.

It holds facts, not rows: the tables are Delta's (kappa/tables).
Read in this order:

- store: objects below a root
- documents: JSON records of one kind, alone or numbered
- offsets, slices: places in the log, and what is between two
- build: a build's birth certificate
- mark: what each commit of a table carries
- frontier: what readers may see of a build
- lease: what readers have pinned, and what collection let go
- kept: frontiers of the past
- alignment: two builds at equal offsets
- lock: the one writer of a build
- stopped: why a job ended for good
- cuts: where a proof cuts the log
"""
