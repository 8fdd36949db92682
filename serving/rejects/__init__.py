"""Rejects: records that could not be folded are listed, exported and redriven.

The room reads rejects at a pinned snapshot, and decides what to produce; it sends nothing itself.
Read in this order:

- rejects.py: the rejects of the live builds, or of one build.
- redrive.py: the export of rejects as lines, and the plan that produces fixed lines again.
"""
