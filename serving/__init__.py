"""Network servers, for readers of the served tables and for programs that send events.

This package does not depend on replay or the engine, and writes no tables. It reads the journal to
find the builds that serve. Read its packages in this order:

    access     the clients on the network, and their rights
    query      SQL over exactly the files of a pinned snapshot
    outlets    data that Kappa sends: change sets, sinks, alerts
    http       the HTTP server: checks of requests, routes, streams, the pages' templates
    postgres   the server for Postgres clients
    collect    data that Kappa receives: events of programs without a Kafka client
"""
