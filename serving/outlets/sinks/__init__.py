"""Sinks: compacted topics that always contain the rows of served tables.

A sink follows the builds that serve, so a candidate sends nothing. A sink runs no user code. Read
in this order:

- sink_topic.py: the topic, created as the sink needs it, and compared with the served table
- sink_position.py: the position of a sink in the changes of its table, and the lease that keeps the
  position's files
- sink_outlet.py: the delivery of a sink: each change set is sent as one transaction
- sink_status.py: the state of each sink as the courier records it, for users and programs
"""

__all__ = ["sink_status"]
