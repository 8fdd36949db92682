"""Observations of the platform that commands, HTTP and the page share.

An observation changes nothing. Texts and rows for display are made only here, so commands, HTTP and
the page show the same facts. Read in this order:

 run_records       the records that supervisor and HTTP server write about themselves
 status            builds: how far each is, and its lag behind the log; unread topics
 status_text       the status and the lag as text and as JSON
 metrics           the metrics in the text format of Prometheus
 monitoring        a dashboard for Grafana, and alert rules for Prometheus
 context           the settings, root, pipelines and broker of a command
 facts             the sentences of facts that need a person, for notices and pages
 listings          history, topics, garbage and rejects as rows
 follow            a rollout's progress until it ends, and progress lines on a terminal
 status_cache      observations that all HTTP clients share
 alerts            alerts, and the messages that could not be delivered
 schemas           declared schemas, compared with the subjects of the registry
 archive           archives, and a check of each against its topic
 graph             the lineage: topics, pipelines, tables, views, outlets, boards
 column_graph      the columns from which the values of a column are computed
 outgoing_changes  the changes that sinks and alerts send at a switch
 logs              the log files of the processes
 topics/           commands on topics: description, users, records, and changes
 doctor/           damage below a root, its consequences, and the repair
"""

__all__ = [
    "alerts",
    "archive",
    "column_graph",
    "context",
    "facts",
    "follow",
    "graph",
    "listings",
    "logs",
    "metrics",
    "monitoring",
    "outgoing_changes",
    "run_records",
    "schemas",
    "status",
    "status_cache",
    "status_text",
]
