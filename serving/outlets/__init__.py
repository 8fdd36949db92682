"""The outlets of served tables (sinks and alerts), the change sets they send, and exports.

An outlet sends only the rows that are served, so a candidate sends nothing. Read in this order:

- changes/: the changes of a served table: a snapshot, then net change sets
- export/: copies of served tables in a folder, for other engines
- outlet.py: the interface between the courier and the sinks and alerts of serving builds
- alerts/: a message for each changed row, delivered at least once
- sinks/: a compacted topic that always contains the rows of a served table
- courier.py: the program that runs all sinks and alerts, each in a thread
"""

__all__ = ["outlet"]
