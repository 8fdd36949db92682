"""The doctor of a root: a search for damage and its consequences, and the repair.

The doctor also lists the access rules that a project needs in the Kafka cluster. The doctor reads
the documents of the root and the files of builds and archives, but does not interpret rows. It
deletes nothing. It moves aside only files that a person gives up, and files that can be derived
again. Read in this order:

 examine  the journal, the builds and the tables
 scrub    reads each data file, and compares it with the recorded sum
 cluster  the records that the loss of a broker would destroy, and the access rules for a project
 repair   moves aside the files that are given up
"""

__all__ = ["cluster", "examine", "repair", "scrub"]
