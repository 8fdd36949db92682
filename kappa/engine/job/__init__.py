"""The process that folds the log into the tables of a build.

A job holds the build's lock and has a separate JVM. A job writes only one kind of journal record:
the release of a hold on its build. Read the modules in this order:

- job.py: the program, with few imports
- legs.py: a leg, its planned slices, and the records of a build's legs
- splits.py: the records by which a slice is folded in parts, for example after two jobs
  died while they folded the slice
- job_run.py: the work on a leg, from loading the build's code to the last slice
- bounded_legs.py: the catch-up, the base of a branch, and the alignment with a frontier
  of the live build
- tail.py: the unbounded leg
- slice_limit.py: the limit on the time that a slice may take without progress
- ordered_steps.py: runs the user's ordered steps on a slice
- next_mark.py: computes the mark, the metadata that each commit of a slice stores
- drift_watch.py: finds new fields, new reasons for rejects, and jumps in the share of
  rejects
- topic_guard.py: checks that the topics are still the same, and that no record was
  missed
- reject_counts.py: a build's rejects, and the limit on the rejects of a candidate
"""

__all__ = ["legs", "reject_counts"]
