"""Serving: answers to queries over exactly the files of a pinned snapshot.

It knows nothing of replay or the engine, and writes no table. It reads from the journal which build
serves. Its rooms, in the order to read them in; each may import only those of earlier floors
(tests/test_rooms.py has the whole plan):

pin      the choice of the builds and frontiers that a reader reads, pinned by a lease
reader   a DuckDB in memory over the files of some builds, and the SQL it runs
query    answers over a pinned snapshot, and how they are written
page     the page as text: its templates, and the files that a browser loads
changes  the changes of a served table: its snapshot, then net change sets
alerts   alerts: a message for each changed row, delivered at least once
courier  the process that sends changes out, by sinks and alerts
collector  the process that takes events over the network
metrics  metrics as text
rejects  rejects: records that could not be folded are listed, exported and redriven
sandbox  untrusted SQL: each query runs in its own confined process
http     the HTTP server: its gate, its errors, and its routes
"""
