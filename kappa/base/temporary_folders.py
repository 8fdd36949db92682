"""Temporary folders of a process, and the folders of the user's cache and state.

There is a kind of temporary folder for each of these uses:

- rows of a query that do not fit in memory (spilled rows)
- the files of a bucket that a query from the network reads
- a proof that folds a build
- the check of an archive
- the request and the files of a child process with Spark
- the empty working folder of the processes that run queries from the network
- the root of `kappa dev`

The name of a folder identifies the process that created the folder. Only the user can read the
folder. The process deletes the folder after its use. If the process was killed, the folder is
deleted by the next process that creates a folder with the same parent, or by `kappa gc`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path

from kappa.base.errors import SettingsError
from kappa.base.process import started

SPILL = "spill-"
PROVE = "prove-"
ARCHIVE = "archive-check-"
QUERY = "query-"
# This folder is below the machine's temporary folder: it has sockets, whose paths must be short.
CHILD = "kappa-child-"
# The working folder of the processes that run queries from the network.
SANDBOX = "kappa-sandbox-"
# The root of a loop over a project's files, for no other command.
DEV = "kappa-dev-"
# The setting by which a user moves the folders elsewhere.
_SETTINGS = {CHILD: "TMPDIR", SANDBOX: "TMPDIR", DEV: "TMPDIR", QUERY: "local in kappa.toml"}
# A name has the process, its birth and a random part: any folder may have other files of the user.
_OURS = re.compile(
    rf"(?:{SPILL}|{PROVE}|{ARCHIVE}|{QUERY}|{CHILD}|{SANDBOX}|{DEV})(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]{{8}}"
)


def make_spill_folder(parent: Path) -> Path:
    """Creates a folder for the rows that a query of this process spills to disk.

    Like `make_folder`, deletes the folders of dead processes below `parent`, and raises
    SettingsError if the folder cannot be created.
    """
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """Creates a temporary folder of this process below `parent`, and returns its path.

    The name of the folder begins with `prefix`. First deletes the temporary folders of dead
    processes below `parent`. Raises SettingsError if the folder cannot be created.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        delete_left_behind(parent)
        folder = parent / f"{prefix}{os.getpid()}-{started(os.getpid())}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
    except OSError as error:
        setting = _SETTINGS.get(prefix, "verify.temp in kappa.toml")
        raise SettingsError(
            f"nothing can be kept for a while below {parent}: {error.strerror}",
            hint=f"set {setting} to a folder you may write",
        ) from error
    return folder


def delete_left_behind(parent: Path) -> None:
    """Deletes this user's temporary folders below `parent` whose processes have died."""
    for left in left_behind(parent):
        shutil.rmtree(left, ignore_errors=True)


def left_behind(parent: Path) -> tuple[Path, ...]:
    """Returns this user's temporary folders below `parent` whose processes have died."""
    found = ((path, _OURS.fullmatch(path.name)) for path in parent.glob("*"))
    # The birth is compared, too: the pid may belong to another process by now.
    return tuple(
        sorted(
            path
            for path, ours in found
            if ours is not None
            and str(started(int(ours["pid"]))) != ours["born"]
            and _is_mine(path)
        )
    )


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def user_cache(name: str) -> Path:
    """Returns the folder `kappa/NAME` in the user's cache folder.

    All projects of the user share this folder. Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name


def user_state(name: str) -> Path:
    """Returns the folder `kappa/NAME` in the user's folder for data that programs keep.

    Programs keep these data between their runs. Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kappa" / name
