"""Folds: from rows to contributions, and from contributions to one row per key.

This package commits nothing. kappa/declare/folds defines the meaning of each kind of fold. Read the
modules in this order:

- latest.py: the newest record of each key, and truncations of a source's table
- combine.py: the SQL that turns rows into contributions, and the folds that no merge can express
- affected_rows.py: the stored rows of the touched keys
- file_scan.py: the input files of a plan that is made once, and that runs again for each slice
- ordered_fold.py, step_loop.py: folds by a step that is called key by key, with the rows in the
  order of the log
- column_loop.py, session_step.py: folds by a step that is called once with the rows of many keys as
  columns, and Kappa's own step for sessions
"""
