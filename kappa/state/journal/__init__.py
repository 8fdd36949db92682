"""The journal: numbered records of what was decided and observed, and by whom.

The package decides nothing: a rollout's state is a fold of its records (replay/rollout). Read its
files in this order:

- kinds, events: what each kind of record says
- verification, receipt: what a verification finds, and what a switch proves by it
- journal: a numbered record, and how one is appended
- begun: the numbers of rollouts, as the records count them
- view: the records that a process has read, each read once
- hold: the record that keeps a build from publishing
- service: the records that end, pause and resume the service of a pipeline
- pause, retirement: the pipelines that are paused, or out of service
"""
