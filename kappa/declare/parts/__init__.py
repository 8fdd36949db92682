"""The parts that declarations are made of, and none of which is declared alone.

- described.py: how errors name what was given instead
- topic_kind.py: retained or compacted
- archived.py: what the archive of a topic keeps
- named_files.py: the files that declarations name
- joined.py: the topics that have joined a pattern
- event.py: the event of a topic, by DDL or by a JSON Schema
- seed.py: the rows of a table that are those of a file
- expiry.py: when rows of a table are gone
- shapes.py: that a pipeline reads by name, and writes a list
- windows.py: columns for windows of event time
"""
