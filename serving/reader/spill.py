"""Folders of one process, for as long as it needs them.

A reader spills into one what does not fit in its memory. A proof folds a build in one, and an
archive is checked in one. Each is named by its process, and deleted with its reader, proof or
check. Those of a killed process are deleted by the next process that makes its folder, or by `kappa
gc`.
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
# Process, its birth, chance: other files of the user's may be beside them, in any folder.
_OURS = re.compile(rf"(?:{SPILL}|{PROVE}|{ARCHIVE})(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]{{8}}")


def make_spill_folder(parent: Path) -> Path:
    """Makes a folder of this process below `parent`; deletes those of dead processes."""
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """Makes a folder of this process below `parent`; deletes those of dead processes.

    Its name begins as given.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in left_behind(parent):
            shutil.rmtree(left, ignore_errors=True)
        folder = parent / f"{prefix}{os.getpid()}-{started(os.getpid())}-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        raise SettingsError(
            f"nothing can be spilled below {parent}: {error.strerror}",
            hint="set verify.temp in kappa.toml to a folder you may write",
        ) from error
    return folder


def left_behind(parent: Path) -> tuple[Path, ...]:
    """Lists the folders below `parent` whose processes have died."""
    found = ((path, _OURS.fullmatch(path.name)) for path in parent.glob("*"))
    # By pid and time of birth: the pid alone may be another process by now.
    return tuple(
        sorted(
            path
            for path, ours in found
            if ours is not None and str(started(int(ours["pid"]))) != ours["born"]
        )
    )
