"""The command line: a module for each group of commands.

A command parses the arguments, calls a function, and renders the result. It makes no decision. Each
command imports other packages in the body of its function: `kappa query` starts no JVM and imports
no Spark, and `kappa --help` imports neither Spark nor DuckDB. tests/test_packages.py checks these
imports.

Read the modules in this order:

    main       the program: signals, arguments, exit code
    app        the app itself: all commands in the order of the help, errors, exit codes
    examples   one example of each command, for the help
    complete   the words that complete a command line, with names of the root and project
    terminal/  shared parts of commands: options, output, lines, and following a rollout
    run        up, down, serve, collect, mcp, gc
    topics     topics join, create, list, describe, alter, delete, lag
    records    topics tail, export, import
    produce    produce
    schemas    schemas list, show, pin, check
    develop    init, dev, test
    deploy     validate, plan, deploy, replay, branch, retry, stage
    promote    wait, verify, promote, undo, abandon
    service    retire, pause, resume
    look       status, history, show, diff, prove, logs, sinks
    graph      graph: which topics, tables and outlets feed each other
    query      query, shell, tables
    prompt/    the SQL prompt of `shell`
    attach     attach: programs with which other tools read tables
    export     export
    config     config show
    completion the completion scripts of shells
    rejects    rejects list, show, export, redrive
    archive    archive status, verify
    changes    changes
    alerts     alerts list, alerts retry
    doctor     doctor, scrub
    root       root copy, adopt
    token      token add, list, remove
"""

__all__ = ["main"]
