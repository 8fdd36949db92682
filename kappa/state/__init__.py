"""All that a root keeps but rows: files, the journal, and the records of builds.

Rows are Delta's (kappa/tables). This package may not run Spark or read the log. Read it in this
order:

    files/           objects below a root, on a disk or in a bucket
    store            the root as all others see it: its objects, and what is this host's alone
    documents        JSON records of one kind, alone or numbered
    journal/         numbered records of what was decided and observed
    offsets          the next offset of every partition; `slices`: ranges between two of these
    witness          the last record read of a partition, by which a log is known again
    build            a build's birth certificate
    mark             the mark that each commit of a table carries
    log_clock        the time that all of a build's log has passed
    frontier         the offsets and versions that readers may see
    recorded, whole  the sums of data files: recorded at a commit, compared when a file is read
    lease            the pins of readers, and the floor of collection
    kept             frontiers of the past
    lock             the one writer of a build
    root             the identity of a root, by which a copy is known
    space            the space of the disk: why jobs rest
    table            the table of a build, by its name
    view_check       what the check of a build's views found

A job leaves these for processes that wait for it:

    alignment        a candidate and the live build at equal offsets
    slice_progress   how far a job is within one slice
    beat             a sign of life
    turns            builds that are to fold what there is, though they rest
    stopped          why a job ended for good
    cuts             the slices of a proof
"""
