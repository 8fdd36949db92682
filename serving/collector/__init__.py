"""The collector: one process that takes events of programs that have no Kafka client.

An event is validated by its topic's declaration, and answered once the broker has acknowledged it.
The room runs no user's code but declarations, and reaches Kafka by kappa/log alone. In reading
order:

- collector.py: the program: its address, its lock, its end
- app.py: the addresses, and the way of one request
- callers.py: the programs and pages that may send, by token and rate
- declared.py: the topics as they are declared now
- lines.py: the events of a request, what became of each, and the answer
- remembered.py: what is answered again by its Idempotency-Key
- later.py: what became of requests that did not wait
- stream.py: events by a websocket
- intake.py: the bounded queue to the broker
- counts.py: what is counted, for metrics
- stand.py: the objects that all ways in share
"""
