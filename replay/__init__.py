"""Replay: the decision about which builds run and which build serves, from a plan to an undo.

The state of all rollouts is a fold of the journal. Replay folds no slice itself: a job
(kappa/engine) does that in a separate process. The engine and serving do not depend on replay. Read
the packages in this order:

 rollout    a build's way from plan to serving, and its end: plan, stage, verify, promote, prove
 status     observations of what runs and serves, work on topics by hand, the doctor
 page       the pages as values, boards, and the API over HTTP
 platform   what `kappa up` runs: the supervisor and its children
"""
