"""Runs the `kappa` command as a user types it: with a displayed prompt, in a separate process."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kappa.base.errors import KappaError


class Prompt:
    """A prompt that runs `kappa` commands in the folder of one project."""

    def __init__(self, console: Console, project: Path, environment: Mapping[str, str]) -> None:
        """Stores the folder `project` and the `environment` in which commands run."""
        self._console = console
        self._project = project
        self._environment = dict(environment)

    def kappa(self, *arguments: str) -> None:
        """Prints a command line and runs the command.

        Raises KappaError if the exit code is not 0.
        """
        self._console.print(
            Text.assemble(
                "\n$ ", (f"kappa {' '.join(_shown(each) for each in arguments)}", "bold")
            ),
            soft_wrap=True,
        )
        # Otherwise our buffer would be printed after the command's output.
        self._console.file.flush()
        code = self.quietly(*arguments)
        if code != 0:
            raise KappaError(f"kappa {arguments[0]} ended with exit code {code}")

    def quietly(self, *arguments: str) -> int:
        """Runs a command without printing its command line. Returns its exit code."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "cli", *arguments],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode


def _shown(argument: str) -> str:
    # Double quotes, as people write SQL in a shell; shlex's single ones would split the SQL's.
    if shlex.quote(argument) == argument:
        return argument
    return f'"{argument}"' if not set(argument) & set('"$`\\!') else shlex.quote(argument)
