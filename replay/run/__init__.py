"""The platform as processes: one supervisor for each root, and its children.

This room starts and ends processes and takes the steps that rollouts need. What a step is, it does
not decide: that is a fold of the journal (replay/rollout). It reads no topic's records.

Read in this order:
supervisor        what `kappa up` runs: the lock, the loop, the end of everything
controller        folds the journal and brings each active rollout on, a step a tick
next_step         the decision for one rollout; ports: what the controller needs of others
processes         the jobs of builds and the verifications
course            what the ends of a job's processes come to; back_off: the wait after a death
child             one child process: started, asked to end, killed, reaped
http_process      the HTTP server as a child; serve: that server's own process
archiver_process  the archiver as a child
kafka             the embedded broker, or the configured cluster
messages          lines for the operator, and errors in a sentence
stop_request      SIGTERM, Ctrl-C and a closed terminal
"""
