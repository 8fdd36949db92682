"""Ways out of served tables: change sets, sinks, alerts.

What goes out follows what serves, so candidates are mute.

- changes/: the changes of a served table: its snapshot, then net change sets
- alerts/: a message for each changed row, delivered at least once
- courier/: the process that sends changes out, by sinks and alerts
"""
