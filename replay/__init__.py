"""Decides which builds run and which build serves, from a plan to an undo.

The states of all rollouts are computed from the journal. This package folds no slices: a job
(kappa/engine) folds them in a separate process. Neither the engine nor the package `serving`
depends on this package. Read the packages in this order:

    rollout    the steps of a build, from plan to retirement: plan, stage, verify, promote, prove
    status     observations of what runs and serves, commands on topics, `kappa doctor`
    page       the data of the pages, the boards, and the API over HTTP
    platform   the processes of `kappa up`: the supervisor and its children
"""
