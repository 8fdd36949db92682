"""Folders of one process: where a reader spills what does not fit in its memory, where a proof folds a build anew, and where an archive is checked.

They are named by their process and go with what they are for. What a killed process has left goes when the next one makes
its folder, or by `kappa gc`.
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
# Process, its birth, chance: beside others of the user's, who may have given any folder.
_OURS = re.compile(rf"(?:{SPILL}|{PROVE}|{ARCHIVE})(?P<pid>\d+)-(?P<born>\d+)-[0-9a-f]{{8}}")


def make_spill_folder(parent: Path) -> Path:
    """A new folder of this process below `parent`; those of dead processes are deleted."""
    return make_folder(parent, SPILL)


def make_folder(parent: Path, prefix: str) -> Path:
    """A new folder of this process below `parent`, its name beginning so; those of dead processes are deleted."""
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
    """The folders below `parent` whose processes have died."""
    found = ((path, _OURS.fullmatch(path.name)) for path in parent.glob("*"))
    # By pid and time of birth: the pid alone may be another process by now.
    return tuple(
        sorted(
            path
            for path, ours in found
            if ours is not None and str(started(int(ours["pid"]))) != ours["born"]
        )
    )
