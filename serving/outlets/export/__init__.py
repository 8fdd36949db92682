"""The export of served tables to a folder, as plain Delta tables and as Iceberg tables.

An exporter copies the served rows at one frontier of each pipeline, and then names the versions of
all tables in one file. Within a build, change sets carry a copy from frontier to frontier; after a
promote, an undo or a gap, a table is written anew.
"""

__all__ = ["exporter"]
