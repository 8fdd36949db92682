"""The process that folds the log into the tables of one build.

A job holds the build's lock and has a JVM of its own. It writes to no journal but a release of its
own hold.

- job.py: the program, with little to import
- legwork.py: one leg, from the build's code to its last slice
- catch_up.py, tail.py: the bounded legs, and the unbounded one
- slice_limit.py: the time and memory that a slice may take
- slice_folder.py: one slice into all tables
- function_rows.py, ordered_steps.py: the user's function and steps on a slice
- next_mark.py: what each table's commit of the slice records
- topic_guard.py: the topics are the same ones, and nothing of them was missed
- rejected.py: what a build has rejected, and the limit of a candidate
"""
