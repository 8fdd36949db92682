"""The changes of a served table: its snapshot, then net change sets, across switches.

A change set is a function of two snapshots, and follows what is served: candidates are mute. This
package pins and reads; it sends nothing anywhere. In reading order:

- cursor.py: a place in the sequence of changes, as text that a reader keeps
- filter.py: the columns and the condition of a reader that wants less than all
- point.py: a table at one frontier, and the lease that keeps its files for a cursor
- change_set.py: one change set: its head, and its rows while it is open
- difference.py: the SQL of the net difference of two points, and the change set that it makes
- follower.py: a follower: a table's change sets, one after the other
- project.py: the changes of a project's tables, for Python programs
- hub.py: one follower for each table, for all readers of a server
"""
