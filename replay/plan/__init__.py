"""The plan: what a deploy would do, why, what it costs, and what refuses it.

Planning changes nothing but caches; replay/stage begins what a plan shows. This room may not append
to the journal. Read in this order:

plan.py        a plan, its steps and its refusals: values
validate.py    what the files alone refuse
observe.py     the facts of a plan: files, journal, log and disk
make_plan.py   facts to a plan
judge.py       what blocks a step, and what is let through
notes.py       what should be known of a step
outlet_notes.py  what a switch sends by sinks and alerts
circles.py     pipelines that read, through sinks, what they change themselves
branch.py      where a branch may begin
overlay.py     whether the tables that serve have the rows already
retry.py       the plan that begins an ended rollout again
plan_text.py   a plan for people and machines
"""
