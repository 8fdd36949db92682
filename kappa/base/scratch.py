"""Temporary folders of a process, and the user's cache.

A reader spills rows that do not fit in memory into a temporary folder. A stranger's query finds the
files of a bucket that the query may read in a temporary folder. A proof folds a build there, an
archive is checked there, and a child of Spark keeps its request and its files there. `kappa dev`
has a root there. The name of each folder names the process. Only the user can read each folder. It
is deleted at the end of the reader, query, proof, check, child or command. The folders of a killed
process are deleted by the next process that makes a folder there, or by `kappa gc`.
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
    """Makes a spill folder of this process below `parent`; deletes folders of dead processes."""
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """Makes a folder of this process below `parent`; deletes folders of dead processes.

    The name of the folder begins with `prefix`.
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
    """Deletes the folders below `parent` whose processes have died."""
    for left in left_behind(parent):
        shutil.rmtree(left, ignore_errors=True)


def left_behind(parent: Path) -> tuple[Path, ...]:
    """Lists this user's folders below `parent` whose processes have died."""
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
    """Returns `kappa/NAME` in the user's cache folder, which all projects of a user share.

    Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name


def user_state(name: str) -> Path:
    """Returns `kappa/NAME` in the user's state folder, which is kept from one run to the next.

    Raises RuntimeError if the user has no home folder.
    """
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kappa" / name
