"""Where a reader spills what does not fit in its memory: a folder of its own, named by its process.

It goes when the reader is closed. What a killed process has left goes when the next one makes its folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from kappa.errors import SettingsError
from kappa.process import started


def make_spill_folder(parent: Path) -> Path:
    """A new folder of this process below `parent`; those of dead processes are deleted."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{_PREFIX}*"):
            if not _alive(left.name.removeprefix(_PREFIX)):
                shutil.rmtree(left, ignore_errors=True)
        folder = parent / f"{_PREFIX}{os.getpid()}-{started(os.getpid())}-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        raise SettingsError(f"nothing can be spilled below {parent}: {error.strerror}", hint="set verify.temp in kappa.toml to a folder you may write") from error
    return folder


_PREFIX = "spill-"


def _alive(name: str) -> bool:
    pid, _, rest = name.partition("-")
    # By pid and time of birth: the pid alone may be another process by now.
    return pid.isdigit() and str(started(int(pid))) == rest.partition("-")[0]
