"""The doctor of a root: a search for damage and its consequences, and the repair.

The doctor also lists what a project needs from the Kafka cluster. It reads the documents of the
root and the files of builds and archives, but interprets no row. It moves aside only files that a
person gives up and files that can be derived again, and deletes nothing. Read in this order:

 examine  the journal, the builds and the tables
 scrub    reads each data file, and compares it with the recorded sum
 cluster  what the loss of a broker would destroy, and the access rules that a project needs
 repair   moves aside the files that are given up
"""

__all__ = ["cluster", "examine", "repair", "scrub"]
