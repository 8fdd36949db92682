"""The plan: what a deploy would do, why, what it costs, and what refuses it.

Planning changes nothing but caches; only stage.py appends to the journal. This room may not run
jobs, and may not promote. Read in this order:

plan.py        a plan, its steps and its refusals: values
validate.py    what the files alone refuse
observe.py     the facts of a plan: files, journal, log and disk
make_plan.py   facts to a plan
judge.py       what blocks a step, and what is let through
notes.py       what should be known of a step
branch.py      where a branch may begin
retry.py       the plan that begins an ended rollout again
plan_text.py   a plan for people and machines
ground.py      what a plan was made on
saved_plan.py  a plan in a file, refused if stale
law.py         the law of slices, tried before a replay
stage.py       builds and the records that begin their rollouts
"""
