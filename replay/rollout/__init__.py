"""The way of one build from stage to serving, or to its end without.

The journal decides everything: what happened is a fold of its records. This room may not run jobs
and may not look at the user's code or at the log. Read in this order:

rollout.py    a rollout, its phases, and the one table of legal transitions
state.py      all builds and rollouts at one record of the journal
move.py       one move of one rollout
group.py      moves of rollouts that one yes approves together
fold.py       records to state
current.py    the state now, folded on from the last look
step.py       what the controller knows at one tick, and the step it chooses
promote.py    the promote: hold, acknowledge, reach, serve
numbered.py   numbers of rollouts, as people type them
history.py    rollouts and proofs, oldest first
outgoing.py  what sinks send at a switch
show.py       one generation in full
libraries.py  packages of this environment, and what changed since a birth
"""
