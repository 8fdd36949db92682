"""The journal: numbered records of decisions and observations, with their authors.

This package makes no decisions: replay/rollout computes the states of rollouts from the journal's
records. Read the modules in this order:

- events: the content of each kind of record, including the results of a verification and the
  receipt of a promote
- journal: a numbered record, the class that appends and reads records, and a view that reads each
  record once
- projections: holds, pauses, retirements and numbers of rollouts, computed from the records
"""

__all__ = ["events", "journal", "projections"]
