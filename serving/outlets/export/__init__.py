"""The export of served tables to a folder, as plain Delta tables and as Iceberg tables.

An exporter copies the served rows at one frontier of each pipeline, and then writes the versions of
all copies into one file. Within a build, a copy is updated from frontier to frontier by change
sets. After a promote or an undo, or if the changes since the copy's frontier are no longer known,
all rows of the table are written again.
"""

__all__ = ["exporter"]
