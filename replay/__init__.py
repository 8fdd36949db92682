"""Replay: the decision about which builds run and which build serves, from a plan to an undo.

The state of all rollouts is a fold of the journal. Replay itself folds no slices: a job
(kappa/engine) folds them in a separate process. The engine and serving do not depend on replay.
Read the packages in this order:

    rollout    the steps of a build, from plan to retirement: plan, stage, verify, promote, prove
    status     observations of what runs and serves, commands on topics, the doctor
    page       the data of the pages, the boards, and the API over HTTP
    platform   the processes of `kappa up`: the supervisor and its children
"""
