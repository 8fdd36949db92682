"""The proof: compares a served table with a second computation of the table from the log.

The second computation folds the log in other slices. A proof does not change what is served. A
proof folds into a separate folder, and appends one Proved record, which does not affect rollouts.
Read the modules in this order:

    prove       the whole proof: pin, second fold in a child process, comparison of tables, likely
                causes of differences, journal record
    slice_cuts  the ways to cut the log into slices
    row_hash    the hash of a table's rows, and the columns left out of the hash
    proof_text  a proof as text and as JSON
"""

__all__ = ["proof_text", "prove", "slice_cuts"]
