"""The demo: the platform on real data, from a log to a replayed change and its undo.

It uses Kappa as a user does: it types commands, and imports none of them. Its folders, in the order
to read them in:

    processes   the commands and children of a run, and their whole family
    producer    the events, the process that sends them, and its account of them
    cluster     the servers of `make cluster`
    judgement   the reader, the oracle, freshness, and the findings

In this folder:

- screen: the story's output, to a terminal or a file
- project: the project's files, and the environment of all processes
- edit: the change from version 1 of `pipelines/flights.py` to version 2
- witnesses: the producer and the reader, at work beside the acts
- measures: what the run measures on this machine
- story: the acts, one after the other
- `__main__`: the program `python -m demo`
"""
