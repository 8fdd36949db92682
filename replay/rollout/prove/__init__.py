"""The proof: a served table compared with a fold of the log from its origin, in other slices.

A proof changes nothing that serves: it folds into a folder of its own, and appends one Proved
record, which changes no rollout. Read in this order:

    prove       the proof from pin to record: the second fold in a child process, the comparison of
                tables, and likely causes
    cutting     how the log is cut into slices
    row_hash    the hash of a table's rows, and the columns left out of the hash
    proof_text  a proof for people and machines
"""

__all__ = ["cutting", "proof_text", "prove"]
