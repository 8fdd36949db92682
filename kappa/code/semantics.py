"""The number for what decode, fold and reject mean; it enters every version.

Raise it when the same log and the same pipeline would give other rows. Kappa's own sources are no
part of the fingerprint, so a refactoring of the platform replays nothing.
"""

# 3: a sum that does not fit is null and says so by a column of its own. A record that a function
# fails on is a reject, unless `on_error="stop"` is declared. Both stopped the job.
SEMANTICS = 3
