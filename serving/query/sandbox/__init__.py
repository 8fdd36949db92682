"""Untrusted SQL: each query runs in its own confined process.

The process has the tables of a single snapshot. The server side never parses an answer, and a
process is never used for a second query. The process of a query writes nothing and connects to
nothing. Read in this order:

- question.py: a query, its allowance and its reply, as values
- sandbox.py: the server's side: takes a process for each query and passes the answer on
- file_cache.py: the files of a root in a bucket, on this host's disk
- processes.py: the fork server and its children as the server handles them
- fork_server.py: the program that forks a process for each query
- frames.py: the protocol between the server and the process of a query
- query_program.py: the program of a query: reads the request, confines itself and answers
- answer_writers.py: the writers of an answer, a writer for each format
- confine.py: the limits that a process sets on itself before it runs untrusted SQL
"""

__all__ = ["confine", "question", "sandbox"]
