"""The parts of `kappa doctor`: finds damage in a root, explains the consequences, and repairs.

`kappa doctor` also lists the access rules that a project needs in the Kafka cluster. These modules
read the records of the root and the files of builds and archives, but do not interpret rows. They
delete nothing. They move aside only files that a person gives up, and files that can be derived
again. Read in this order:

 examine  the journal, the builds and the tables
 scrub    reads each data file, and compares it with the recorded checksum
 cluster  the records that the loss of a broker would destroy, and the access rules for a project
 repair   moves aside the files that are given up
"""

__all__ = ["cluster", "examine", "repair", "scrub"]
