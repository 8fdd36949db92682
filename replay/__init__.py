"""Replay: the decision about which builds run and which serve, from a plan to an undo.

The state of all rollouts is a fold of the journal. Replay folds no slice itself: a job
(kappa/engine) does that in a process of its own. The engine and serving know nothing of replay. Its
packages, in the order to read them in:

    rollout    a build's way from plan to serving, and its end: plan, stage, verify, promote, prove
    status     looks at what runs and serves, topics by hand, the doctor
    page       the pages as values, boards, and the API over HTTP
    platform   what `kappa up` runs: the supervisor and its children
"""
