"""Events on their way to the broker: whose they are, which are valid, what becomes of them.

The room knows nothing of how they arrive. In reading order:

- named.py: the names of sources
- callers.py: the programs and pages that may send, by token and rate
- declared.py: the topics as they are declared now
- lines.py: the events of a request, what became of each, and the answer
- remembered.py: what is answered again by its Idempotency-Key
- later.py: what became of requests that did not wait
- intake.py: the bounded queue to the broker
- until_acknowledged.py: events that are sent until the broker has them
- counts.py: what is counted, for metrics
"""
