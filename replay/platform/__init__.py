"""The platform as it runs: one supervisor for each root, its children, and the server of HTTP.

It takes the steps that rollouts need. What a step is, it does not decide: that is a fold of the
journal (replay/rollout). It reads no topic's records. Read in this order:

    supervisor        what `kappa up` runs: the lock, the loop, the end of everything
    detached          a supervisor in the background, until it is ready
    controller        folds the journal and brings each active rollout on, a step a tick
    next_step         the decision for one rollout; ports: what the controller needs of others
    messages          lines for the operator, and errors in a sentence
    keeper            the process that has HTTP's socket, and outlives a killed supervisor
    serve             the HTTP server's own process, its child

Children are started, ended and reaped:

    child             one child process: started, asked to end, killed, reaped
    back_off          the wait after a death
    pulse             how long a child has shown no sign of life
    spares            processes with Spark ready, for the next job or command
    rest              when a build needs no job, and when it is woken: pure
    rests             the builds that rest, by looks at the ends of the log
    processes         the jobs of builds and the verifications
    course            what the ends of a job's processes come to
    view_checks       the check of a serving build's views, once after a deploy
    http_process      the keeper of HTTP as a child, and an earlier one
    socket_door       HTTP's listening socket, handed from one keeper to the next
    archiver_process  the archiver as a child
    at_broker         a program that is given the broker's address; the courier and the collector
    reserve           space that is given up once the disk is full
    kafka             the embedded broker, or the configured cluster
    stop_request      SIGTERM, Ctrl-C and a closed terminal

The root as a whole, while nothing runs:

    copy              what is copied, in which order, and how a cut copy is gone on with
    adopt             a copy that was made by other means becomes a root of its own
"""
