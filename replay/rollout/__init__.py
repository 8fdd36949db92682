"""The way of one build from plan to serving, or to an end without serving.

The journal decides everything: the state of all rollouts is a fold of the journal's records. This
package runs no job, and reads no records of topics except the samples of a plan. Read in this
order:

    rollout              a rollout, its phases, and the one table of legal transitions
    state                all builds and rollouts at one record of the journal
    move                 one move of one rollout, and moves that one yes approves together
    fold                 records to state; `current`: the current state of a root
    step                 the facts that the controller sees at one tick, and the chosen step
    promote              the promote: hold, acknowledge, reach, serve
    rollout_numbers      numbers of rollouts, as people type them
    history              rollouts and proofs, oldest first
    generation           one generation in full
    libraries            packages of this environment, and changes since a birth
    supervisor_report    the supervisor's report: waits, rates and deaths

From a plan with a yes to the builds that the plan begins:

    plan/                the actions of a deploy, their reasons and costs, and refusals
    law                  the law of slices, tried on a sample before a replay
    stage                creates builds, and appends the records that begin their rollouts
    verify/              the verification of a candidate: checks, and a comparison of rows
    prove/               a served table compared with a fold of the log from its origin

Requests of an operator; each appends one record or is refused by name:

    operator_requests    undo, promote, verify again, abandon, pause, resume
    pipeline_retirement  retire a pipeline: tables that leave, their readers, and the request

Builds that nothing needs any more are deleted by file list, never by age, and never files that a
reader has pinned (law 11):

    garbage              finds garbage and deletes it, for the controller and `kappa gc`
"""

__all__ = [
    "current",
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
