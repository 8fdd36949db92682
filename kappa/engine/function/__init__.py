"""The user's function, applied to a decoded slice.

The results are contributions, and the records on which the function fails. This package commits and
publishes nothing. Read the modules in this order:

- decoded_rows.py: selecting and rejecting decoded records
- contribution.py: the function, the check of its result against a build's tables, its
  contributions, and the plan that runs the function for every small slice
- function_rows.py: the function of a build on successive slices, and the records that it rejects
- refused_records.py, expired_rows.py: records that become rejects, for example because they
  contribute to expired rows
- redriven_records.py: the decision whether a redriven record is folded
- failing_records.py: the search for the records on which the function fails
- trial.py: runs of the function on a few rows at a time, in the session's own JVM, without a Spark
  job
- failure.py: the line and the error of a function that failed
- spark_errors.py: the translation of Spark's errors into Kappa's errors
"""
