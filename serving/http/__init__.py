"""The HTTP server: its gate, its errors, queries, snapshots, events. Knows nothing of rollouts.

- gate.py, token.py, headers.py, patience.py, login.py: who may come in, and how slowly
- http.py, stand.py, problem.py: the application, what its routes stand on, its errors
- queries.py, snapshots.py, events.py, static.py: the routes
"""
