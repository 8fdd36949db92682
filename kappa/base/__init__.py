"""The base of every package: errors, settings, processes, the clock, text for people.

It imports no package but its own, and knows nothing of topics, builds or tables. Read it in this
order:

    errors      the tree of errors, and the exit codes
    settings    kappa.toml, environment and flags; `sections` has each setting, `kafka_settings`
                those of the cluster, and `section/` the parts that sections are made of
    process     child processes that end with their parent
    forked      a call in a process of its own, within limits of time and memory
    scratch     folders of one process, deleted with it or after it; the cache of a user
    program     the options, errors and exit code of a child's program; modes of its files
    failpoint   the places at which tests kill a process
    disk        files that are whole, or not there, also after a power loss
    sealed      the hash by which a document shows that it is as it was written
    clock       the time as records have it, and seconds per step for a line in a log
    source      the place of a declaration in the user's files
    units       times and sizes as text
    sql         names and texts as SQL has them
    duck        the door to DuckDB
    loops       loops over all records, compiled by Numba
    java/       Java on this machine, and the jars of the broker and of Spark
"""

__all__ = [
    "clock",
    "disk",
    "duck",
    "errors",
    "failpoint",
    "forked",
    "kafka_settings",
    "loops",
    "process",
    "program",
    "scratch",
    "sealed",
    "sections",
    "settings",
    "source",
    "sql",
    "units",
]
