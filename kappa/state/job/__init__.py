"""The records that a job leaves beside its frontiers, for processes that wait for it.

The room keeps facts, as kappa/state does, and runs nothing. Read in this order:

- alignment: a candidate and the live build at equal offsets
- slice_progress: how far a job is within one slice
- beat: a sign of life
- turns: builds that are to fold what there is, though they rest
- stopped: why a job ended for good
- cuts: the slices of a proof
"""
