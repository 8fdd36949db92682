"""The Postgres server: any Postgres client reads pinned snapshots, and writes nothing.

The package speaks protocol version 3 on asyncio, and asks all SQL of the sandbox of serving/query:
a query's own process writes the rows as messages, which the server passes on. Read in this order:

- server.py: connections: their bounds, TLS, the password, cancel requests
- scram.py: the exchange by which a client shows its password
- session.py: the session of a client: statements, portals, transactions and their snapshot
- answers.py: the way to the sandbox, and the pins of transactions
- commands.py: the commands that a session answers itself, such as BEGIN, SET, FETCH and COPY
- translation.py: the words of Postgres that DuckDB reads otherwise
- parameters.py: the values of a client's parameters, as SQL
- settings.py: the settings of a session that clients read and set
- messages.py: the messages of the protocol, and errors with their SQLSTATE
"""

__all__ = ["server"]
