"""Programs of child processes: command lines, options, errors and exit codes.

A program is a module with a function `main`. Every program has the options `--project` and
`--root`, and its own named options. When a program fails, it writes the error to stderr as the
command line does, and exits with the error's exit code.

This module also sets the modes of files. Files that a command and its children create for Kappa's
own use can be read only by the user.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from kappa.base.log_lines import Level, write_log_line

if TYPE_CHECKING:
    # A program that needs no settings takes less memory without this module.
    from kappa.base.settings import Settings

# The user's own umask, after a command has replaced the umask.
_users_umask: list[int] = []


def keep_private() -> None:
    """Sets the umask so that only the user can read new files of this process and its children."""
    before = os.umask(0o077)
    if not _users_umask:
        _users_umask.append(before)


def hand_out(file: Path) -> None:
    """Changes the mode of a file or folder to the mode that the user's umask allows.

    Call this function for a file or folder whose path the user gave.
    """
    if _users_umask:
        file.chmod((0o777 if file.is_dir() else 0o666) & ~_users_umask[0])


@contextmanager
def handing_out() -> Iterator[None]:
    """Sets the user's own umask within the block, for files that others may read.

    The umask applies to the whole process. So while the block runs, no other thread may create
    files of the root, except in folders that only the user may enter.
    """
    if not _users_umask:
        yield
        return
    before = os.umask(_users_umask[0])
    try:
        yield
    finally:
        os.umask(before)


def command_of(module: str, *options: str) -> list[str]:
    """Returns the command line that runs the Python module `module` with `options`."""
    # -P keeps a file of the user's folder from being imported in place of a library with its name.
    return [sys.executable, "-P", "-m", module, *options]


def project_options(settings: Settings) -> tuple[str, ...]:
    """Returns the options that every program requires: `--project` and `--root`."""
    return "--project", str(settings.project), "--root", settings.root_url


def run_program(
    module: str,
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
    *,
    has_log: bool = True,
    **options: Callable[[str], object],
) -> int:
    """Parses the options of a program, calls `work` with them, and returns the exit code.

    `options` maps the name of each further option, in addition to `--project` and `--root`, to the
    function that converts the option's text. If `work` raises a KappaError, the result is the
    error's exit code. The error is written to stderr: as a log line if `has_log`, otherwise as text
    for a terminal.
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
        if has_log:
            write_log_line(f"{error.message}\n{error.hint}".rstrip(), Level.ERROR)
        else:
            print(error_text(error), file=sys.stderr, flush=True)
        return int(error.exit_code)


def error_text(error: KappaError) -> str:
    """Formats an error for a terminal: the message, and the hint on a second line if given."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
