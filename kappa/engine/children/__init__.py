"""Spark processes with a single task, and builds that are folded for a test.

The processes touch no serving build, take no lock, and answer by files of a folder. Read in this
order:

- `describe.py`: a program that finds and checks the columns that a pipeline's function returns.
- `watch.py`: the calls that a function may not make.
- `rehearsal.py`: a build that is folded in this process, from a log in memory, and the rows that
  readers see.
- `some_events.py`: events of a pipeline's topics, by hand or at random.
- `slicings.py`: the laws of slices and of views, tried on a log; the comparison of two foldings.
- `fold_sample.py`: a program that folds a sample, for `kappa dev`.
- `law.py`: a program that tries the law on pipelines before a replay.
- `refold.py`: a program that folds the log of a build once more, for a proof.
- `spare.py`: a program whose Spark is booted and warm before a task comes, on its input or through
  a door.
- `warm_up.py`: the steps that a spare runs once, so that the first task meets warm code.
"""

__all__ = ["rehearsal", "slicings", "some_events"]
