"""From a plan with a yes to the builds that it begins.

Only stage.py appends to the journal. This room may not run jobs, and may not promote. Read in this
order:

ground.py      what a plan was made on
saved_plan.py  a plan in a file, refused if stale
law.py         the law of slices, tried before a replay
stage.py       builds and the records that begin their rollouts
"""
