"""The journal: numbered records of decisions and observations, with their authors.

The package decides nothing: a rollout's state is a fold of the journal (replay/rollout). Read the
files in this order:

- events: the content of each kind of record, with the findings of a verification and the receipt of
  a switch
- journal: a numbered record, the way to append a record, and the view that reads each record once
- projections: holds, pauses, retirements and numbers of rollouts, as the records make them
"""

__all__ = ["events", "journal", "projections"]
