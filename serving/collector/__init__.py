"""The collector: one process that takes events of programs that have no Kafka client.

An event is validated by its topic's declaration, and answered once the broker has acknowledged it.
The room runs no user's code but declarations, and reaches Kafka by kappa/log alone. In reading
order:

- events/: an event's caller, its validity, its way to the broker, and what became of it
- pulled/: sources whose events the collector fetches itself
- collector.py: the program: its address, its lock, its end
- app.py: the addresses, and the way of one request
- single.py: single events that arrive whole, without a task each
- stream.py: events by a websocket
- spool.py: events on the disk, in their order
- one_way.py: events whose sender gets no answer, through the spool
- datagrams.py: events by UDP
- stand.py: the objects that all ways in share
"""
