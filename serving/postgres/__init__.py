"""The Postgres server: any Postgres client can read pinned snapshots, but write nothing.

The package implements version 3 of the protocol on asyncio. All SQL runs in the sandbox of
serving/query: the process of a query writes the rows as messages of the protocol, and the server
passes these messages on to the client. Read in this order:

- server.py: connections: their limits, TLS, the password, cancel requests
- scram.py: the exchange by which a client proves that it knows its password
- session.py: the session of a client: statements, portals, transactions and their snapshot
- answers.py: requests to the sandbox, and the pinned snapshots of transactions
- commands.py: the commands that a session answers itself, such as BEGIN, SET, FETCH and COPY
- translation.py: translates the words of Postgres that DuckDB reads differently
- parameters.py: the values of a client's parameters, as SQL
- settings.py: the settings of a session that clients read and set
- messages.py: the messages of the protocol, and errors with their SQLSTATE
"""

__all__ = ["server"]
