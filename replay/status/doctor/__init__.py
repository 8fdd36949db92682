"""The doctor of a root: damage, its consequences, and the files that can be moved aside.

The doctor lists the needs of a project of its cluster, too. The doctor reads records and the files
that builds and archives need, but no row. The doctor moves files that a person gives up, and
deletes nothing. Read in this order:

    examine  the journal, the builds and their tables
    scrub    reads each data file, and compares the file with its sum
    cluster  the losses with one broker, and the rules (ACLs) that a project needs
    repair   moves aside the files that are given up
"""
