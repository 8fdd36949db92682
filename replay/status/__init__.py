"""The status: what runs, how far each build is, and how far behind the log.

A look changes nothing; only underway.py and running.py also write what the supervisor reports of
itself. Read in this order:

running      supervisor and HTTP server of a root, as they write themselves down
underway     the supervisor's report: waits, rates and deaths
space        the space of the disk: why jobs rest
held_back    what open transactions keep from readers
unread       topics that match a pattern and are not read
status       builds: how far each is, and how far behind the log
status_text  the status for people and machines
metrics      the text for Prometheus
"""
