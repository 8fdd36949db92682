"""The verification of a candidate: its checks, and a comparison of its rows with the served rows.

Only rows at equal offsets are compared. A verification changes only the journal. A candidate passes
only if a verification ends with the verdict "passed". Read the modules in this order:

    verify                 the verification of one rollout, and its verdict; a separate process
    pairs                  two builds at equal offsets, pinned
    diff                   the differences of two builds, table by table
    unsettled_keys         keys of compacted topics that are left out of a comparison
    diff_listing           a comparison as text, as rows, and as JSON
    view_texts             compares maintained views with their queries
    view_check             runs view_texts for a serving build, once after a deploy; a separate
                           process
"""

__all__ = ["diff", "diff_listing", "pairs"]
