"""Processes that are ready for a task before there is one: a spare.

- `tasks.py`: the tasks that come on its input, or through its door.
- `spare.py`: the program: Spark is booted and warm before the task comes.
- `warm_up.py`: what a spare runs once, so that its first task meets warm code.
"""
