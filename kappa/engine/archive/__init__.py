"""Archives: typed copies of topics' logs in columns, in which each record is written exactly once.

This package writes and checks archives without a JVM. kappa/tables/archive.py defines archives, and
engine/read/archive_reader.py reads them.

- archiver.py: the process, which finds the topics and partitions to archive, and reads the raw
  records that older archives have kept
- archive_writer.py: the commit of a range of a partition
- archive_check.py: the check that an archive equals the log
"""

__all__ = ["archive_check", "archiver"]
