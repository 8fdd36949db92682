"""The rollout of a build: from a plan to serving, or to an end without serving.

The journal decides everything: the states of all rollouts are computed from the journal's records.
This package runs no job. It reads no records of topics, except the samples of a plan. Read its
modules in this order:

    rollout              a rollout, its phases, and the table of all legal transitions
    state                all builds and rollouts after one record of the journal
    move                 one move of one rollout, and moves of rollouts that are approved together
    fold                 computes the state from the journal's records
    current_state        the current state of a root
    step                 the facts that the controller sees at one tick, and the chosen step
    promote              the steps of a promote: hold, acknowledge, reach, serve
    rollout_numbers      the numbers of rollouts that people type
    history              rollouts and proofs, oldest first
    generation           all facts about one generation
    libraries            packages of this environment, and their changes since a build was created
    supervisor_report    the supervisor's report: waits, rates and deaths

From an approved plan to the builds that the plan creates:

    plan/                the actions of a deploy, their reasons and costs, and refusals
    law                  the law of slices, tested on a sample before a replay
    stage                creates builds, and appends the records that begin their rollouts
    verify/              the verification of a candidate: checks, and a comparison of rows
    prove/               compares a served table with a second computation from the log

Requests of an operator. Each request appends one record, or raises an error with the reason:

    operator_requests    undo, promote, verify again, abandon, pause, resume
    pipeline_retirement  retires a pipeline, and previews the affected tables and readers

The deletion of builds and files that are no longer needed. The age of a file never decides its
deletion, and a file that a reader has pinned is never deleted:

    garbage              finds garbage and deletes it, for the controller and `kappa gc`
"""

__all__ = [
    "current_state",
    "fold",
    "garbage",
    "generation",
    "history",
    "law",
    "libraries",
    "operator_requests",
    "pipeline_retirement",
    "promote",
    "rollout",
    "rollout_numbers",
    "stage",
    "state",
    "step",
    "supervisor_report",
]
