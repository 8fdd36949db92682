"""All that a root stores, except rows: files, the journal, and the records of builds.

Rows are in Delta tables (kappa/tables). This package may not run Spark or read the log. Read it in
this order:

    files/           objects below a root, on a disk or in a bucket
    store            the root for all other packages: its objects, and files of this host only
    documents        JSON records of one kind, single or numbered
    journal/         numbered records of decisions and observations
    offsets          the next offset of every partition
    slices           ranges between two vectors of offsets, and the slices of a proof
    witness          the last record read of a partition, to recognize a log again
    build            a build's birth certificate; `table`: a table in the certificate
    mark             the mark that each commit of a table carries
    log_clock        the time that all partitions of a build's log have passed
    frontier         the offsets and versions that readers may see
    file_sums        the sums of data files: recorded at a commit, compared before a first read
    lease            the pins of readers, and the floor of collection
    kept_frontiers   frontiers of the past
    lock             the lock that makes a process the only writer of a build
    names            the names in a root, for the completion of command lines
    root             the identity of a root, by which a copy is recognized
    disk_space       the space of the disk: why jobs rest, and the reserve
    alignment        a candidate and the live build at equal offsets
    read_memory      a cache of the records that a process has read
    build_status     a job's sign of life and progress, requested turns, reasons of final stops
"""

__all__ = [
    "alignment",
    "build",
    "build_status",
    "disk_space",
    "documents",
    "drift",
    "file_sums",
    "frontier",
    "kept_frontiers",
    "lease",
    "lock",
    "log_clock",
    "mark",
    "names",
    "offsets",
    "record_cache",
    "root",
    "slices",
    "store",
    "table",
    "witness",
]
