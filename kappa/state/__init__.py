"""Everything that a root stores except rows: files, the journal, and the records of builds.

Rows are in Delta tables (kappa/tables). This package may not run Spark or read Kafka topics. Read
the modules in this order:

    files/           objects below a root, on a disk or in a bucket
    store            the root for all other packages: its objects, and files of this host only
    documents        JSON records of one kind, single or numbered
    journal/         numbered records of decisions and observations
    offsets          the next offset of every partition
    slices           ranges between two vectors of offsets, and the slices of a proof
    witness          the last record read of a partition: it shows whether the log was cut
    build            the birth certificate of a build, which describes the build
    table            a table, as a birth certificate describes it
    mark             the metadata of a table's commit: offsets, log times and counts
    log_clock        the log time that all partitions of a build's topics have reached
    frontier         the offsets and versions that readers may see
    file_sums        checksums of data files: stored at a commit, compared before a first read
    lease            the versions that readers have pinned, and the floor of garbage collection
    kept_frontiers   earlier frontiers, for queries as of a past time
    lock             the lock that makes a process the only writer of a build
    names            the names in a root, for the completion of command lines
    root             the identity of a root, by which a copy is recognized
    disk_space       the free space of the disk, and the pause of jobs while the disk is full
    alignment        a candidate and the live build at equal offsets
    record_cache     a cache of the records that a process has read
    build_status     what a running job reports: that it is alive, its progress, its last error
    drift            events that no longer match a topic's declaration
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
