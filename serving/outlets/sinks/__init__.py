"""Sinks: a compacted topic that always has the rows of a served table.

A sink follows what serves, so candidates are mute. It runs no user's code. In reading order:

- sink_topic.py: the topic, made as it has to be, and compared with what is served
- sink_position.py: the place of a sink in the changes of its table, and the lease that keeps it
- sink_outlet.py: the delivery of one sink: each change set one transaction
- sink_status.py: the state of each sink as the courier writes it down, for people and machines
"""
