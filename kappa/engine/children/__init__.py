"""Programs that perform a single task in a separate Spark process, and test folds of builds.

The processes change no serving build, take no lock, and write their answers to files in a folder.
Read the modules in this order:

- describe.py: a program that finds and checks the columns that a pipeline's function
  returns
- call_guard.py: records a function's calls, and refuses calls that a function may not
  make
- rehearsal.py: folds a build in this process from a log in memory, and returns the rows
  that readers would see
- event_generator.py: events for a pipeline's topics, written by hand or generated at
  random
- law_check.py: tests the law of slices on a log, and compares maintained views with
  their queries
- fold_sample.py: a program that folds a sample, for `kappa dev`
- law_program.py: a program that tests the law of slices on pipelines before a replay
- refold.py: a program that folds the log of a build once more, for a proof
- spare.py: a program that boots and warms up Spark, and then reads its tasks from
  standard input or from a socket
- warm_up.py: the work that a spare does once, so that its first task runs in a warm JVM
"""

__all__ = ["event_generator", "law_check", "rehearsal"]
