"""The user's function, applied to a decoded slice.

The results are contributions, and the records on which the function fails. This package commits and
publishes nothing. Read the modules in this order:

- decoded_rows.py: selecting and rejecting decoded records
- contribution.py: the function, its check against a build's tables, its contributions, and the
  plan that runs the function for every small slice
- function_rows.py: the function of a build on successive slices, and the records it rejects
- refused_records.py, expired_rows.py: records that become rejects, and records that come too late
  since their rows have expired
- redriven_records.py: the redriven records that are folded
- failing_records.py: the search for the records on which the function fails
- trial.py: the function on a few rows at a time, in the session's own JVM, without a job
- failure.py: the line and the error of a function that failed
- spark_errors.py: Spark's errors in Kappa's words
"""
