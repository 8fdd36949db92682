"""The journal: what was decided and observed, by whom, in numbered records.

It decides nothing: a rollout's state is a fold of its records (replay/rollout).
Read in this order:

- journal: the records, and how one is appended
- view: what a process has read, and reads no more
- hold: which record keeps a build from publishing
"""
