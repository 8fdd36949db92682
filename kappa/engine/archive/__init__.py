"""Archives: typed, columnar copies of topics' logs. A copy contains each record exactly once.

This package writes and checks archives without a JVM. kappa/tables/archive.py defines archives, and
engine/read/archive_reader.py reads archives.

- archiver.py: the process that archives the due partitions of all topics, and that reads lost
  records from older archives with raw records
- archive_writer.py: the commit of a range of a partition
- archive_check.py: the check that an archive equals the log
"""

__all__ = ["archive_check", "archiver"]
