"""The process that folds the log into the tables of a build.

A job holds the build's lock and has a JVM of its own. The only journal record that a job writes is
a release of its own hold. Read in this order:

- job.py: the program, with few imports
- legs.py: a leg, its planned slices, and the records of a build's legs
- splits.py: the record that cuts a slice into pieces after two jobs died in the slice
- legwork.py: a leg, from the build's code to the last slice; the parts that legs share
- bounded_legs.py: the catch-up, and the alignment with a frontier of the live build
- tail.py: the unbounded leg
- slice_limit.py: the time and memory that a slice may take
- ordered_steps.py: the user's steps on a slice
- next_mark.py: the mark that each table's commit of the slice records
- drift_watch.py: fields, rejects and shares of rejects that are new
- topic_guard.py: checks that topics are the same, and that nothing was missed
- rejected.py: a build's rejects, and the limit of a candidate
"""

__all__ = ["legs", "rejected"]
