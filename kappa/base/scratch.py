"""Folders of one process, for as long as it needs them, and the user's cache.

A reader spills into one what does not fit in its memory. A stranger's query finds in one the files
of a bucket that it may read. A proof folds a build in one, an archive is checked in one, and a
child of Spark's has one for its request and its files. Each is named by its process, for its user
alone, and deleted with its reader, query, proof, check or child. Those of a killed process are
deleted by the next process that makes its folder, or by `kappa gc`.
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
# Below the machine's temporary folder: sockets are in it, whose paths have to be short.
CHILD = "kappa-child-"
# By what a user has them elsewhere.
_SETTINGS = {CHILD: "TMPDIR", QUERY: "local in kappa.toml"}
# Process, its birth, chance: other files of the user's may be beside them, in any folder.
_OURS = re.compile(
    rf"(?:{SPILL}|{PROVE}|{ARCHIVE}|{QUERY}|{CHILD})(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]{{8}}"
)


def make_spill_folder(parent: Path) -> Path:
    """Makes a folder of this process below `parent`; deletes those of dead processes."""
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """Makes a folder of this process below `parent`; deletes those of dead processes.

    Its name begins as given.
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
    # By pid and time of birth: the pid alone may be another process by now.
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

    Raises RuntimeError without a home.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kappa" / name
