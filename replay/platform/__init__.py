"""The running platform: a supervisor for each root, child processes, and the HTTP server.

The platform takes the steps that rollouts need. replay/rollout computes each next step from the
journal alone. No module here reads the records of a topic. Read in this order:

    start            starts the supervisor in the background, and waits until it is ready
    supervisor       the process of `kappa up`: the lock, the loop, the shutdown
    controller       reads the journal, and takes a step of each active rollout per tick
    next_step        the decision for one rollout
    messages         lines for the operator, and errors as sentences
    http_supervisor  the process that keeps the HTTP socket open if the supervisor is killed
    http_port        the port that a project keeps, and the process that uses the preferred port
    serve            the process of the HTTP server, a child of the HTTP supervisor

Modules that start, end and reap child processes:

    child            one child process: started, asked to end, killed, reaped, and started again
    processes        the jobs of builds and the verifications
    spares           processes with Spark ready, for the next job or command
    idle_builds      decides when a build needs no job, and wakes the build when the log grows
    notifier         messages about the platform itself, sent by a thread of the supervisor
    services         archiver, courier, collector, HTTP supervisor, view check, class archives
    kafka            the embedded broker, or the configured cluster
    stop_request     SIGTERM, Ctrl-C and a closed terminal

The root as a whole, while no process uses it:

    copy             copies a root, continues an interrupted copy, and adopts a copy
"""

__all__ = ["copy", "http_port", "serve", "start", "supervisor"]
