"""The way of one build from plan to serving, or to its end without.

The journal decides everything: what happened is a fold of its records. No job is run here, and no
topic's records are read but a plan's samples. Read in this order:

    rollout      a rollout, its phases, and the one table of legal transitions
    state        all builds and rollouts at one record of the journal
    move         one move of one rollout; `group`: moves that one yes approves together
    fold         records to state; `current`: the state now, folded on from the last look
    step         what the controller knows at one tick, and the step it chooses
    promote      the promote: hold, acknowledge, reach, serve
    numbered     numbers of rollouts, as people type them
    history      rollouts and proofs, oldest first; `show`: one generation in full
    outgoing     what sinks send at a switch
    libraries    packages of this environment, and what changed since a birth
    underway     the supervisor's report: waits, rates and deaths

From a plan with a yes to the builds that it begins:

    plan/        what a deploy would do, why, what it costs, and what refuses it
    ground       what a plan was made on
    saved_plan   a plan in a file, refused if stale
    law          the law of slices, tried before a replay
    stage        builds and the records that begin their rollouts
    verify/      the verification of a candidate: its checks, and its rows against those that serve
    prove/       a served table against a fold of the log from its origin

Requests of an operator, of which each appends one record or is refused by name:

    intents      undo, promote, verify again, abandon
    retiring     retire a pipeline: what leaves, who reads it, and the request
    pausing      pause a pipeline, and resume it
    conflicts    refusals of requests that came second

Builds that nothing needs any more are deleted by file list, never by age, and nothing that a reader
has pinned (law 11):

    retire       data of retired builds, and builds that were never staged
    garbage      what nothing needs, by build and kind
    hands        a dry run looks, a collection deletes
    gc           `kappa gc`: finds garbage below the root, and deletes it
"""
