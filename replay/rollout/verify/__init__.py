"""The verification of a candidate: its checks, and its rows against those that serve.

Only rows at equal offsets are compared. It changes nothing but the journal, and only a verdict that
was reached passes. Read in this order:

verify.py        the verification of one rollout, a process of its own
verdict.py       the verdict on what was found, by checks, thresholds and rejects
pairs.py         two builds at equal offsets, pinned
diff.py          the differences of two builds, table by table
rows.py          the rows of one table before and after, compared
unsettled.py     keys of compacted topics that are set aside
diff_listing.py  a comparison for people and machines
verification_progress.py  the step that a verification has begun, for people who wait
"""
