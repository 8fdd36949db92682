"""The demo: the platform on real data, from events in topics to a replayed change and its undo.

The demo runs Kappa's commands as a user does, and does not import them. Its folders, in the order
in which to read them:

- processes: the commands and child processes of a run, and all their descendants
- producer: the events, the process that sends them, and its record of the sent events
- cluster: the servers of `make cluster`
- judgement: the reader, the oracle, freshness, and the findings

The modules in this folder:

- screen: the output of the story, to a terminal or a file
- project: the project's files, and the environment of all processes
- edit: the change of `pipelines/flights.py` from version 1 to version 2
- witnesses: the producer and the reader, which run in parallel with the acts
- measures: the measurements of the run on this machine
- story: the acts, one after the other
- `__main__`: the program `python -m demo`
"""
