"""The collector: one process that takes events of programs that have no Kafka client.

An event is validated by its topic's declaration, and answered once the broker has acknowledged it.
The collector runs no user's code but declarations, and reaches Kafka by kappa/kafka alone. In
reading order:

- collector.py: the program: its address, its lock, its end
- app.py: the addresses, and the way of one request
- named.py: the names of sources
- callers.py: the programs and pages that may send, by token and rate
- declared.py: the topics as they are declared now
- lines.py: the events of a request, what became of each, and the answer
- remembered.py: what is answered again by its Idempotency-Key
- later.py: what became of requests that did not wait
- intake.py: the bounded queue to the broker
- until_acknowledged.py: events that are sent until the broker has them
- counts.py: what is counted, for metrics
- single.py: single events that arrive whole, without a task each
- stream.py: events by a websocket
- spool.py: events on the disk, in their order
- one_way.py: events whose sender gets no answer, through the spool
- datagrams.py: events by UDP
- stand.py: the objects that all ways in share
- pulled/: sources whose events the collector fetches itself
"""

__all__ = ["collector", "declared"]
