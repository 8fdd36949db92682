"""The user's function over a decoded slice.

Results are contributions, and the records that the function fails on. This package commits nothing
and publishes nothing. Read in this order:

- `decoded_rows.py`: rows of decoded records, picked and rejected.
- `contribution.py`: the function, checked against the tables of a build, and its contributions; the
  function as a plan that is run for every small slice.
- `function_rows.py`: the function of a build, run on slice after slice, and its judgement.
- `refused.py`, `expired.py`: records that become rejects, and records that come too late for rows
  that are gone.
- `redriven.py`: the redriven records that are folded.
- `culprits.py`: the records that the function fails on, found by ever fewer.
- `trial.py`: the function over few rows at a time, in the session's own JVM, without a job.
- `failure.py`: the line and the error of a function that failed.
- `trouble.py`: Spark's errors in our words.
"""
