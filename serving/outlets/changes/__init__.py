"""The changes of a served table, across promotes and undos.

A reader gets a snapshot, and then net change sets. A change set depends only on two snapshots, and
follows the builds that serve, so candidates have no influence. This package pins snapshots and
reads them; it sends nothing. Read in this order:

- cursor.py: a place in the sequence of changes, as text that a reader stores
- filter.py: the columns and the condition of a reader that wants only a part of the changes
- table_snapshot.py: a point, that is, a table at a frontier; and the lease that keeps the files for
  a cursor
- change_set.py: a change set: the head, and the rows while the change set is open
- difference.py: the SQL of the net difference of two points, and the change set from that SQL
- follower.py: a follower: the change sets of a table, one after the other
- follower_registry.py: one follower for each table, for all readers of a server
"""

__all__ = ["change_set", "cursor", "filter", "follower", "follower_registry", "table_snapshot"]
