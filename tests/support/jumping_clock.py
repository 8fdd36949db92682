"""A clock of processes whose time of day a test can change at once.

The clock is C code that the processes load before everything else.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_LONG = struct.Struct("l")


def why_not() -> str | None:
    """Returns the reason why this module does not work on this machine, or None if it does."""
    if sys.platform != "linux":
        return "no Linux"
    return None if shutil.which("gcc") else "no gcc (apt-get install gcc)"


class Clock:
    """The clock of all processes that are started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        self._shift = folder / "shift"
        library = folder / "jumping_clock.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-lpthread", "-ldl"],
            check=True,
        )
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(self._shift)}

    def jump(self, seconds: int) -> None:
        """Sets the clock this many seconds ahead of the machine's (behind it if negative)."""
        mode = "r+b" if self._shift.exists() else "wb"
        with self._shift.open(mode) as file:
            file.write(_LONG.pack(seconds))
