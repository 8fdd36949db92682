"""The process that folds the log into the tables of one build.

A job holds the build's lock and has a JVM of its own. It writes to no journal but a release of its
own hold. Read in this order:

- job.py: the program, with little to import
- legs.py: a leg, its planned slices, and the records of a build's legs
- splits.py: the record that cuts a slice into pieces after two jobs died in it
- align.py: the frontier of the live build that a candidate is brought to
- legwork.py: one leg, from the build's code to its last slice
- catch_up.py, tail.py: the bounded legs, and the unbounded one
- slice_limit.py: the time and memory that a slice may take
- slice_folder.py: one slice into all tables
- function_rows.py, ordered_steps.py: the user's function and steps on a slice
- next_mark.py: what each table's commit of the slice records
- topic_guard.py: the topics are the same ones, and nothing of them was missed
- rejected.py: what a build has rejected, and the limit of a candidate
"""

__all__ = ["legs", "rejected"]
