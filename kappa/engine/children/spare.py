"""A process with Python imported and Spark booted and warm, which waits for a task.

    python -m kappa.engine.children.spare --project DIR --root ROOT --folder FOLDER --door yes|no

FOLDER takes Spark's spills and leftovers, and belongs only to this process. The process is killed
with the process that started it. A task comes on the input. If the task comes before Spark has
booted, nothing is warmed up. With a door, a command may take the spare, too: by a socket in
FOLDER's parent, named for this process (task.py), which goes when a command has come. A process
runs only the tasks of a single command, one after the other, and only a single job: so a job never
meets the leftovers of another build.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import import_module
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.base.process import name_process
from kappa.base.program import command_of, run_program
from kappa.base.settings import load_settings
from kappa.code.task import ENDED, Task, spare_socket
from kappa.engine.children.tasks import Tasks
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot_ahead, end_process

# Modules that tasks use are imported while the JVM boots.
_IMPORTED = (
    "kappa.engine.children.describe",
    "kappa.engine.job.legwork",
    # The compiled loops, for a short catch-up.
    "kappa.kafka.bulk",
    "kappa.records.decode.readers",
)


def run_tasks(tasks: Tasks) -> int:
    """Runs each task, up to a job. Returns the exit code of this process."""
    for task in tasks:
        code = _run(task)
        if task.log:
            return code
        print(f"{ENDED}{code}", file=sys.stderr, flush=True)
    return ExitCode.OK


def _run(task: Task) -> int:
    """Runs a task's program in this process; returns its exit code."""
    if task.log:
        log = os.open(task.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.environ.update(task.environment)
    if task.folder:
        os.chdir(task.folder)
    name_process(lambda _spare: " ".join(command_of(task.program, *task.arguments)))
    code: int = import_module(task.program).main(list(task.arguments))
    return code


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""

    def work(given: argparse.Namespace) -> int:
        settings = load_settings(given.project, root=given.root)
        folder = Path(given.folder)
        tasks = Tasks(spare_socket(folder.parent, os.getpid()) if given.door == "yes" else None)
        machine = boot_ahead(settings, profile=Profile.TAIL, local_dir=folder)
        for module in _IMPORTED:
            import_module(module)
        if given.door == "yes" and not tasks.is_there():
            spark = machine.session()
            warm = import_module("kappa.engine.children.warm_up")
            for warming in warm.steps(spark, folder):
                if tasks.is_there():
                    break
                warming()
            tasks.open_door()
        return run_tasks(tasks)

    return run_program("kappa.engine.children.spare", work, arguments, folder=str, door=str)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        end_process(main())
