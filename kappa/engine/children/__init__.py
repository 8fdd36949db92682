"""Spark processes that do one thing and end, and builds that are folded for a test.

They touch no build that serves, take no lock, and answer by files of a folder. Read in this order:

- `describe.py`: a program that finds out which columns a pipeline's function returns.
- `watch.py`, `returned.py`: what the function may not call, and what it must return.
- `rehearsal.py`: a build that is folded in this process, from a log in memory.
- `some_events.py`: events of a pipeline's topics, by hand or at random.
- `slicings.py`: the laws of slices and of views, tried on one log.
- `same_rows.py`, `served_rows.py`: the rows of two foldings, compared; and those that readers see.
- `law.py`: a program that tries the law on pipelines before they are replayed.
- `refold.py`: a program that folds the log of a build once more, for a proof.
- `tasks.py`: the tasks that come on a spare's input, or through its door.
- `spare.py`: a program whose Spark is booted and warm before its task comes.
- `warm_up.py`: what a spare runs once, so that its first task meets warm code.
"""

__all__ = ["rehearsal", "served_rows", "slicings", "some_events"]
