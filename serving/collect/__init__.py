"""The collector: a process that takes events of programs without a Kafka client.

The topic's declaration validates an event, and the answer follows once the broker has acknowledged
the event. The collector runs no user's code but declarations, and reaches Kafka by kappa/kafka
alone. In reading order:

- collector.py: the program: its address, its lock, its end
- app.py: the addresses, and the way of one request, or of events by a websocket
- callers.py: the programs and pages that may send, by token and rate
- declared.py: the topics as declared now
- lines.py: the events of a request, the outcome of each, and the answer
- remembered.py: answers that are given again by Idempotency-Key, or asked for by an id
- intake.py: the bounded queue to the broker
- until_acknowledged.py: events that are sent until the broker has them
- counts.py: the counts for metrics
- single.py: single events that arrive whole, without a task each
- spool.py: events on the disk, in order
- one_way.py: events whose sender gets no answer, through the spool
- datagrams.py: events by UDP
- stand.py: the objects that all ways in share
- pulled/: sources whose events the collector fetches itself
"""

__all__ = ["collector", "declared"]
