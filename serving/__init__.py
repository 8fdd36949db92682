"""Serving: the doors for readers and senders.

It knows nothing of replay or of the engine, and writes no table. It reads from the journal which
build serves. Its packages, in the order to read them in:

    access     who asks over the network, and what each may do
    query      SQL over exactly the files of a pinned snapshot
    outlets    what goes out: change sets, sinks, alerts
    http       the network's door: gate, routes, streams, the page's templates
    postgres   the door for Postgres clients
    collect    what comes in: events of programs without a Kafka client
"""
