"""A spare without Spark, which is ready at once. Its tasks, door and end are those of any spare."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.base.program import run_program
from kappa.code.task import spare_socket
from kappa.engine.children.spare import Tasks, run_tasks


def main(arguments: list[str] | None = None) -> int:
    def work(given: argparse.Namespace) -> ExitCode:
        tasks = Tasks(spare_socket(Path(given.folder).parent, os.getpid()))
        if not tasks.is_there():
            tasks.open_door()
        return ExitCode(run_tasks(tasks))

    return run_program("plain_spare", work, arguments, folder=str, door=str)


if __name__ == "__main__":
    os._exit(main())
