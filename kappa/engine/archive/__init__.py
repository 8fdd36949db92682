"""Archives: typed copies of topics' logs in columns, written exactly once.

This package writes and checks archives without a JVM; kappa/tables/archive.py defines archives, and
engine/read/archived.py reads archives.

- archiver.py: the process, which finds the topics and partitions that are due; raw records that
  older archives kept
- archive_writer.py: makes a commit of a range of a partition
- archive_check.py: the check that an archive equals the log
"""

__all__ = ["archive_check", "archiver"]
