"""The platform as it runs: a supervisor for each root, child processes, and the HTTP server.

The platform takes the steps that rollouts need. It does not choose the steps: a step follows from a
fold of the journal (replay/rollout). No module here reads the records of a topic. Read in this
order:

    start         starts the supervisor in the background, and waits until it is ready
    supervisor    the process of `kappa up`: the lock, the loop, the end
    controller    folds the journal and takes each active rollout forward, a step a tick
    next_step     the decision for one rollout
    messages      lines for the operator, and errors in a sentence
    http_keeper   the process that has HTTP's socket, and outlives a killed supervisor
    http_port     the port that a project keeps, and who had the port that it wished for
    serve         the HTTP server's own process, a child of the keeper

Children are started, ended and reaped:

    child         one child process: started, asked to end, killed, reaped; the wait after a death
    processes     the jobs of builds and the verifications
    spares        processes with Spark ready, for the next job or command
    rest          when a build needs no job, and when it is woken by the ends of the log
    notifier      messages about the platform itself, by a thread of the supervisor
    services      archiver, courier, collector, keeper of HTTP, check of views, class archives
    reserve       space that is given up once the disk is full
    kafka         the embedded broker, or the configured cluster
    stop_request  SIGTERM, Ctrl-C and a closed terminal

The root as a whole, while nothing runs:

    copy          the copy of a root, how a cut copy continues, and the adoption of a copy
"""

__all__ = ["copy", "http_port", "serve", "start", "supervisor"]
