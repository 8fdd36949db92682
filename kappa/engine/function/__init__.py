"""The user's function over a decoded slice.

Results are contributions, and the records that the function fails on. This package commits nothing
and publishes nothing. Read in this order:

- `decoded.py`: the decoded records of a slice, as a protocol.
- `decoded_here.py`, `decoded_at_spark.py`: a small slice in this process, a large slice in files.
- `decoded_files.py`, `decoded_rows.py`: the files of a topic, and rows of decoded records.
- `contribution.py`: the function, checked against the tables of a build, and its contributions.
- `prepared.py`: the function as a plan that is run for every small slice.
- `refused.py`, `expired.py`: records that become rejects, and records that come too late for rows
  that are gone.
- `redriven.py`: the redriven records that are folded.
- `culprits.py`, `narrowing.py`: the records that the function fails on, found by ever fewer.
- `trial.py`: the function over few rows at a time, in the session's own JVM, without a job.
- `failure.py`: the line and the error of a function that failed.
- `trouble.py`: Spark's errors in our words.
"""
