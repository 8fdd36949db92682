"""The journal: numbered records of decisions and observations, with their authors.

The package makes no decisions: the state of a rollout is a fold of the journal (replay/rollout).
Read the files in this order:

- events: the content of each kind of record, with the findings of a verification and the receipt
  of a switch
- journal: a numbered record, how a record is appended, and a view that reads each record once
- projections: holds, pauses, retirements and numbers of rollouts, derived from the records
"""

__all__ = ["events", "journal", "projections"]
