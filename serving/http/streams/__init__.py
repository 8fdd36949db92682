"""Streams over HTTP: what is sent for as long as a client listens.

- events.py: the journal as server-sent events.
- changes.py: the changes of a table, as server-sent events and by websocket.
"""
