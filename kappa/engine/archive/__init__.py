"""The archives: typed copies of topics' logs in columns, written exactly once without a JVM.

This package writes and checks archives; kappa/tables/archive.py defines them, and
engine/read/archived.py reads them.

- archiver.py: the process, and which topic and partition is due
- archive_writer.py: one range of one partition becomes one commit
- earlier.py: raw records that older archives kept, decoded again for a newer declaration
- archive_check.py: the check that an archive equals the log
"""

__all__ = ["archive_check", "archiver"]
