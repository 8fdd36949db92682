"""Observations of the platform, for commands, HTTP and the page alike.

An observation changes nothing. Texts and rows are made here once, so that commands, HTTP and the
page show the same. Read in this order:

    run_records       the records that supervisor and HTTP server write of themselves
    status            builds: how far each is, and how far behind the log; unread topics
    status_text       the status and the lag for people and machines
    metrics           the text for Prometheus
    monitoring        a dashboard for Grafana, and alert rules for Prometheus
    context           the settings, root, pipelines and broker of a command
    listings          history, topics, collection and rejects as rows
    follow            a rollout's progress to the end, and progress lines on a terminal
    shared_looks      observations that all clients of HTTP share
    alerts            alerts, and the messages that were given up
    schemas           declared schemas beside the subjects of the registry
    archive           archives, and whether each agrees with the topic
    graph             the lineage: topics, pipelines, tables, views, outlets, boards
    column_graph      the columns from which the values of a column come
    outgoing_changes  the changes that sinks and alerts send at a switch
    logs              the log files of the processes
    topics/           topics by hand: description, users, records, and changes
    doctor/           damage below a root, the consequences, and the repair
"""

__all__ = [
    "alerts",
    "archive",
    "column_graph",
    "context",
    "follow",
    "graph",
    "listings",
    "logs",
    "metrics",
    "monitoring",
    "outgoing_changes",
    "run_records",
    "schemas",
    "shared_looks",
    "status",
    "status_text",
]
