"""The user's function over a decoded slice: its contributions, and the records it fails on.

It commits nothing and publishes nothing. Read in this order:

- `decoded.py`: the decoded records of a slice, as a protocol.
- `decoded_here.py`, `decoded_at_spark.py`: a small slice in this process, a large one in files.
- `decoded_files.py`, `decoded_rows.py`: the files of a topic, and rows of decoded records.
- `contribution.py`: the function, held to the tables of a build, and what it contributes.
- `prepared.py`: the function as one plan that is run for every small slice.
- `refused.py`, `expired.py`: records that become rejects, and those that come too late for rows
  that are gone.
- `redriven.py`: which redriven records are folded.
- `culprits.py`, `narrowing.py`: the records that the function fails on, found by ever fewer.
- `failure.py`: the line and the error of a function that failed.
- `trouble.py`: Spark's errors in our words.
"""
