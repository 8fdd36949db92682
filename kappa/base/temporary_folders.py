"""Temporary folders of a process, and the folders of the user's cache and state.

There is a kind of temporary folder for each of these uses:

- a query spills rows that do not fit in memory
- a query from the network downloads the files of a bucket that it may read
- a proof folds a build, and an archive is checked
- a child process with Spark stores its request and its files
- `kappa dev` stores its root

The name of a folder identifies the process that created the folder. Only the user can read the
folder. The folder is deleted when the use ends. If the process was killed, the folder is deleted by
the next process that creates a folder with the same parent, or by `kappa gc`.
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
# The root of a loop over a project's files, for no other command.
DEV = "kappa-dev-"
# The setting by which a user moves the folders elsewhere.
_SETTINGS = {CHILD: "TMPDIR", DEV: "TMPDIR", QUERY: "local in kappa.toml"}
# A name has the process, its birth and a random part: any folder may have other files of the user.
_OURS = re.compile(
    rf"(?:{SPILL}|{PROVE}|{ARCHIVE}|{QUERY}|{CHILD}|{DEV})(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]{{8}}"
)


def make_spill_folder(parent: Path) -> Path:
    """Creates a folder of this process for spilled rows. Raises the errors of `make_folder`.

    Like `make_folder`, deletes the folders of dead processes below `parent`.
    """
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """Creates a folder of this process below `parent`. Deletes the folders of dead processes.

    The name of the new folder begins with `prefix`. Raises SettingsError if the folder cannot be
    created.
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
    """Deletes the temporary folders below `parent` whose processes have died."""
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
    """Returns `kappa/NAME` in the user's cache folder, which all projects of the user share.

    Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name


def user_state(name: str) -> Path:
    """Returns `kappa/NAME` in the user's folder for data that programs keep between their runs.

    Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kappa" / name
