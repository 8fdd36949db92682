"""The legs of a build: what its job is about to fold, written down before it begins.

A leg is decided here and folded in engine/job. This room reads and writes records; it knows neither
Spark nor the log.

- legs.py: a leg, its planned slices, and the records of a build's legs
- splits.py: the record that cuts a slice into pieces after two jobs died in it
- align.py: the frontier of the live build that a candidate is brought to
"""
