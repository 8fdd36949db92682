"""Folds: from rows to contributions, and to rows by key.

This package commits nothing. The meaning of each kind of fold is in kappa/declare/folds. Read in
this order:

- latest.py: the newest record of each key, and truncations of a source's table.
- combine.py: the SQL that makes rows contributions; folds that no merge can express, computed with
  the stored rows of their keys.
- touched.py: the stored rows of the touched keys.
- leaf.py: a plan that is made once and run over ever new rows.
- ordered.py, step_loop.py: folds by a step, in the order of the log: key by key.
- column_loop.py, session_step.py: folds by a step over whole columns of many keys, and Kappa's own
  step for sessions.
"""
