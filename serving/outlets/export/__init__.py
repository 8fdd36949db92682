"""The export of served tables to a folder, as plain Delta tables and as Iceberg tables.

An exporter copies the served rows at one frontier of each pipeline, and then names the versions of
all tables in one file. Within a build, change sets move a copy from frontier to frontier. After a
promote, an undo or a gap, all rows of a table are written again.
"""

__all__ = ["exporter"]
