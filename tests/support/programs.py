"""Programs that a test runs to their end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(
    *command: object, folder: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command with empty input; `environment` is added to that of this process.

    Raises CalledProcessError if the command fails and `check` is True.
    """
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=check,
        timeout=600,
    )


def run_python(
    *arguments: object, folder: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs this process's Python with these arguments, as `run_program` does."""
    return run_program(sys.executable, *arguments, folder=folder, check=check, **environment)
