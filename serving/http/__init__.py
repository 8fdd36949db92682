"""The HTTP server: checks of requests, errors, and routes for queries and snapshots.

The server does not depend on rollouts: other packages pass their routes to the server as routers.
The gate is the part of the server that checks each request before a route handles the request. Read
the modules in this order:

- http.py: the application behind the gate.
- address.py: the address of the server, the check that strangers need a token, and the socket.
- app_state.py: the objects that all routes share, and functions whose result many requests share.
- problem.py: errors as RFC 9457 documents.
- bounds.py: the limits of a server, of requests and of connections.
- request_checks.py: the gate.
- rights.py: the act of each route, and whether a request's client may do the act.
- token.py: the browser's cookie for the token, and the queue of requests with wrong tokens.
- headers.py: a request's headers, and the site that sent the request.
- connection_limits.py: the limits of connections: time for the head, and places for unauthenticated
  clients.
- login.py: the form that gives a browser the cookie.
- queries.py: the routes for queries, which may wait for the client's own writes.
- snapshots.py: snapshots pinned by name for many requests.
- page/: the page as text: the templates, and the files that a browser loads.
- exposition.py: a metric in Prometheus's text format.

Streams are sent for as long as a client listens:

- open_streams.py: the open streams, which end with the server.
- events.py: the journal as server-sent events.
- changes.py: the changes of a table, as server-sent events and by websocket, and a signal that the
  rows of some tables have changed.
"""

__all__ = [
    "address",
    "app_state",
    "bounds",
    "changes",
    "connection_limits",
    "events",
    "exposition",
    "headers",
    "http",
    "login",
    "open_streams",
    "problem",
    "request_checks",
    "rights",
    "snapshots",
    "token",
]
