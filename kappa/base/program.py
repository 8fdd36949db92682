"""Programs of child processes: how one is started, which options it takes, and how it ends.

A program is a module with a `main`. Each takes the project and the root, and names its other
options. It writes an error to stderr as the command line does, and ends with the error's exit code.
All that a command and its children keep is for their user alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError

if TYPE_CHECKING:
    # A program that needs no settings is smaller without them.
    from kappa.base.settings import Settings

# The user's own umask, once a command has replaced it.
_users_umask: list[int] = []


def keep_private() -> None:
    """Makes what this process and its children create from now on readable by their user alone."""
    before = os.umask(0o077)
    if not _users_umask:
        _users_umask.append(before)


def hand_out(file: Path) -> None:
    """Gives a file that the user has named the mode that the user's other programs give it."""
    if _users_umask:
        file.chmod(0o666 & ~_users_umask[0])


def command_of(module: str, *options: str) -> list[str]:
    """Returns the command line that runs a module as a program."""
    # -P: a file of the user's folder must not be imported instead of a library of that name.
    return [sys.executable, "-P", "-m", module, *options]


def project_options(settings: Settings) -> tuple[str, ...]:
    """Returns the options that every program takes: the project and the root."""
    return "--project", str(settings.project), "--root", settings.root_url


def run_program(
    module: str,
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
    **options: Callable[[str], object],
) -> int:
    """Runs a program's work on its options, and returns its exit code.

    `options` are those besides the project and the root, each with the type of its value.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--root", required=True)
    for name, kind in options.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args(arguments)
    try:
        return int(work(given))
    except KappaError as error:
        # A full disk costs the lines, and not the exit code.
        with suppress(OSError):
            print(error_text(error), file=sys.stderr, flush=True)
        return int(error.exit_code)


def error_text(error: KappaError) -> str:
    """Returns an error as lines: what is wrong, and what to do about it if that is known."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
