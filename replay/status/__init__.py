"""Looks at what runs, serves and waits, for commands, HTTP and the page alike.

A look changes nothing. Texts and rows are made here once, so that all three show the same. Read in
this order:

    running        supervisor and HTTP server of a root, as they write themselves down
    held_back      what open transactions keep from readers
    unread         topics that match a pattern and are not read
    status         builds: how far each is, and how far behind the log
    status_text    the status for people and machines
    metrics        the text for Prometheus
    here           the settings, root, pipelines and broker of a command
    listings       history, topics and collection as rows; rejects_text: rejects
    follow         a rollout's progress to its end; progress shows it on a terminal
    desk           one look shared by all clients of HTTP
    alerts         alerts, and the messages that were given up
    schemas        declared schemas beside the subjects of the registry
    archive        archives, and whether they are what their topics are
    sending        what sinks send at a promote
    logs           the log files of the processes
    topics/        topics by hand: what each is, what uses it, its records, and changes of it
    doctor/        what is damaged below a root, what follows from it, and its repair
"""
