"""Replay: the decision about which builds run and which serve, from a plan to an undo.

What happened is a fold of the journal. Replay folds no slice itself: a job (kappa/engine) does
that in a process of its own. The engine and serving know nothing of replay.

Its rooms, in the order to read them in; each may import only those of earlier floors
(tests/test_rooms.py has the whole plan):

rollout    the way of one build from stage to serving: records of the journal, folded to state
changes    the changes of a new version: in code, for readers, in events
intents    requests of an operator: each appends one record, or is refused by name
retire     builds that nothing needs any more, and the deletion of their files
preflight  the obstacles to a replay in code, log and cost
status     what runs, how far each build is, and how far behind the log
verify     the verification of a candidate: its checks, and its rows against those that serve
topics     topics by hand: what each is, what uses it, its records, and changes of it
root       the root as a whole: its copy to another disk or bucket
plan       what a deploy would do, why, what it costs, and what refuses it
doctor     what is damaged below a root, what follows from it, and its repair
prove      the proof: a served table against a fold of the log from its origin
stage      from a plan with a yes to the builds that it begins
look       looks at what runs, serves and waits, for commands, HTTP and the page alike
http       the API over HTTP, and the same intents
boards     dashboards of the project's own, each a file of charts with their queries
children   the processes of a supervisor: jobs, verifications, archiver, HTTP, broker
page       the pages as values
run        the platform as it runs: one supervisor for each root, and the server of HTTP
"""
