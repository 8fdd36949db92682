"""The collector: a process that accepts events from programs without a Kafka client.

An event is validated against the topic's declaration. The answer follows once the broker has
acknowledged the event. The declarations are the only code of the user that the collector runs. It
uses Kafka only through kappa/kafka. Read in this order:

- collector.py: the program: its address, its lock, its shutdown
- app.py: the addresses, and the handling of one request, or of events from a websocket
- callers.py: the programs and pages that may send, by token and rate
- declared_topics.py: the topics, with their current declarations
- lines.py: the events of a request, the outcome of each event, and the answer
- request_answers.py: answers that are repeated for the same Idempotency-Key, or that the client
  requests later by an id
- ingest_queue.py: the bounded queue to the broker
- acknowledged_send.py: events that are sent until the broker has acknowledged them
- counts.py: the counts for metrics
- single_event.py: requests with a single event, handled without a task per request
- spool.py: events on the disk, in order
- fire_and_forget.py: events whose sender gets no answer, sent through the spool
- datagrams.py: events by UDP
- app_state.py: the objects that all ways of receiving events share
- pulled/: sources from which the collector fetches events itself
"""

__all__ = ["collector", "declared_topics"]
