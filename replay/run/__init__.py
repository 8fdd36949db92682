"""The platform as it runs: one supervisor for each root, and the server of HTTP.

This room takes the steps that rollouts need. What a step is, it does not decide: that is a fold of
the journal (replay/rollout). It reads no topic's records; replay/children has its processes.

Read in this order:
supervisor        what `kappa up` runs: the lock, the loop, the end of everything
detached          a supervisor in the background, until it is ready
controller        folds the journal and brings each active rollout on, a step a tick
next_step         the decision for one rollout; ports: what the controller needs of others
messages          lines for the operator, and errors in a sentence
keeper            the process that has HTTP's socket, and outlives a killed supervisor
serve             the HTTP server's own process, its child
"""
