"""The outlets of served tables: change sets, sinks, alerts.

An outlet sends what serves, so candidates are mute. In reading order:

- changes/: the changes of a served table: a snapshot, then net change sets
- export/: copies of served tables in a folder, for other engines
- outlet.py: the seam between the courier and the sinks and alerts that serving builds declare
- alerts/: a message for each changed row, delivered at least once
- sinks/: a compacted topic that always has the rows of a served table
- courier.py: the program that runs all sinks and alerts: a thread for each
"""

__all__ = ["outlet"]
