"""The journal: numbered records of what was decided and observed, and by whom.

The package decides nothing: a rollout's state is a fold of its records (replay/rollout). Read its
files in this order:

- events: what each kind of record says, with the findings of a verification and the receipt of a
  switch
- journal: a numbered record, how one is appended, and the view by which a process reads each once
- projections: holds, pauses, retirements and numbers of rollouts, as the records make them
"""
