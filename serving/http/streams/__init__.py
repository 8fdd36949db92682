"""Streams over HTTP: what is sent for as long as a client listens.

- open_streams.py: the streams that are open, which end with the server.
- events.py: the journal as server-sent events.
- reading.py: a reader of a table's changes, as the server's loop sees it.
- moves.py: that the rows of some tables have changed.
- changes.py: the changes of a table, as server-sent events and by websocket.
"""
