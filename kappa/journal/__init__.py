"""The append-only, numbered records of what was decided and observed."""
