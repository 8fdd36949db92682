"""The records that a root keeps of its builds. It opens the root (kappa/objects).

The room keeps facts, not rows: the tables are Delta's (kappa/tables). It may not run Spark or read
the log. Read its files in this order:

- store: objects below a root, and what is this host's alone
- documents: JSON records of one kind, alone or numbered
- offsets: the next offset of every partition
- witness: the last record read of a partition, by which a log is known again
- slices: ranges between two offset vectors
- build: a build's birth certificate
- mark: the mark that each commit of a table carries
- log_clock: the time that all of a build's log has passed
- frontier: the offsets and versions that readers may see
- lease: the pins of readers, and the floor of collection
- kept: frontiers of the past
- lock: the one writer of a build
- root: the identity of a root, by which a copy is known
- job/: what a job leaves beside its frontiers
"""
