"""The base of every room: errors, settings, processes, the clock, text for people.

It imports no room but its own, and knows nothing of topics, builds or tables. Read it in this
order:

    errors      the tree of errors, and the exit codes
    settings    kappa.toml, environment and flags; `sections` has each setting, `kafka_settings`
                those of the cluster; `section` is a room of what sections are made of
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
    compiled    a room of its own: loops that Numba compiles
"""
