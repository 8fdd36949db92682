"""Modules that every other package uses: errors, settings, processes, the clock, text output.

This package imports no other package of Kappa, and contains nothing about topics, builds or tables.
Read the modules in this order:

    errors             the hierarchy of errors, and the exit codes
    settings           kappa.toml, environment and flags, and the place where each setting is set
    sections           the sections of kappa.toml, with each setting's type and default
    cluster_rules      the settings of Spark that a job on a cluster may have
    process            child processes that end with their parent
    fork_call          a call in a separate process, within limits of time and memory
    temporary_folders  temporary folders of a process, deleted afterwards; the cache of a user
    program            options, errors and exit code of a child's program; modes of files
    log_lines          lines in the logs of processes, with a time and a level
    failpoint          the places at which tests kill a process
    disk               files that are either whole or absent, also after a power loss
    document_seal      the hash in a document, by which a later change is noticed
    clock              the format of timestamps in records, and a stopwatch for steps
    source             the place of a declaration in the user's files
    units              times and sizes as text
    sql                quoted names and text literals for SQL
    duck               the only module that opens connections to DuckDB
    loops              loops over all records, compiled by Numba
    java/              Java on this machine, and the jars of the broker and of Spark
"""

__all__ = [
    "clock",
    "cluster_rules",
    "disk",
    "document_seal",
    "duck",
    "errors",
    "failpoint",
    "fork_call",
    "log_lines",
    "loops",
    "process",
    "program",
    "sections",
    "settings",
    "source",
    "sql",
    "temporary_folders",
    "units",
]
