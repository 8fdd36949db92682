"""The proof: a served table against a fold of the log from its origin, in other slices.

A proof changes nothing that serves: it folds into a folder of its own, and appends one Proved
record, which changes no rollout. Read in this order:

prove.py       the proof from pin to record
provable.py    whether code, rules and log are still those of the build
cutting.py     how the log is cut
refold.py      the second fold, in a child process
equality.py    the comparison, table by table
row_hash.py    the hash of a table's rows, and what is left out of it
causes.py      likely causes of a difference
proof_text.py  a proof for people and machines
"""
