"""The obstacles to a replay in code, log and cost, examined before one begins.

It decides nothing: it finds, and a plan judges. Only readable.py reads the log. A fact that cannot
be had is absent, and refuses nothing. Read in this order:

observed.py       the facts of a plan
declared.py       the pipelines that the files declare, without a broker
finding.py        a finding, and what lets one through
sinks.py          the topics that sinks go to
subjects.py       the subjects that are pinned, and their newest versions
preflight.py      what the log can no longer give, or not in time
replication.py    what one broker's loss would take
cost.py           records, bytes, disk and time of a replay
sample.py         a sample of a log
readable.py       whether sampled records can be read as declared
determinism.py    the lint: what may give other rows in a replay
doubts.py         the names that the lint knows
"""
