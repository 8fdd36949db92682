"""The HTTP server: its gate, its errors, and the routes for queries and snapshots.

The room knows nothing of rollouts: their routes are given to it as routers. Read in this order:

- http.py: the application behind its gate.
- address.py: the address, its guard, and its socket.
- stand.py: the objects that all routes share, and looks that many requests share.
- problem.py: errors as RFC 9457 documents.
- bounds.py: the bounds of a server, its requests and its connections.
- gate.py: the checks that each request passes first.
- token.py: the browser's cookie for the token, and the line of wrong tokens.
- headers.py: a request's headers, and the site that sent it.
- patience.py: the bounds of connections: their heads, and how many strangers have.
- login.py: the form that gives a browser its cookie.
- queries.py: the routes for queries.
- waiting.py: requests that wait for their client's own writes.
- snapshots.py: snapshots pinned by name for many requests.
- static.py: the files of the pages.
- streams/: what is sent for as long as a client listens.
"""
