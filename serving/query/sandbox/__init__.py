"""Untrusted SQL: queries run in confined processes, the workers.

A worker opens the tables of a single snapshot, and answers the queries of a single reader, one
after the other. No state passes from one query to the next. A worker cannot write files or connect
to anything, and the server never parses an answer. Read in this order:

- question.py: a query, its limits and its answer, as values
- sandbox.py: the server's part: sends each query to a worker and passes the answer on
- fair_queue.py: the places for queries, and the order in which clients get them
- workers.py: the workers by snapshot and reader, and how long each worker is used
- file_cache.py: the files of a root in a bucket, on this host's disk
- processes.py: the fork server and the workers, as objects of the server
- fork_server.py: the program that forks a process for each worker
- frames.py: the protocol between the server and a worker
- query_program.py: the program of a worker: opens a snapshot, confines itself and answers
- answer_writers.py: the writers of an answer, one for each format
- confine.py: the limits that a process sets on itself before it runs untrusted SQL
"""

__all__ = ["confine", "question", "sandbox"]
