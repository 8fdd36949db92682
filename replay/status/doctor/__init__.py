"""The doctor of a root: damage, the consequences, and files that can be moved aside.

The doctor also lists the needs of a project from the Kafka cluster. The doctor reads records and
the files that builds and archives need, but no row. The doctor moves files that a person gives up,
and deletes nothing. Read in this order:

    examine  the journal, the builds and the tables
    scrub    reads each data file, and compares the file with the recorded sum
    cluster  the losses with a broker, and the rules (ACLs) that a project needs
    repair   moves aside the files that are given up
"""

__all__ = ["cluster", "examine", "repair", "scrub"]
