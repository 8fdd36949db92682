"""A separate ext4 file system, in a file, whose power a test can cut."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# ioctl(2) of ext4 and xfs: the file system ends at once. With this flag nothing more is written,
# its own journal neither (EXT4_GOING_FLAGS_NOLOGFLUSH).
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
_MEGABYTES = 2048
_PATIENCE_SECONDS = 20.0


def why_not() -> str | None:
    """Returns the reason why this module does not work on this machine, or None if it does."""
    if os.geteuid() != 0:
        return "no root"
    if shutil.which("mkfs.ext4") is None:
        return "no mkfs.ext4"
    if not Path("/dev/loop-control").exists():
        return "no loop devices"
    return None


def fill(folder: Path) -> Path:
    """Takes all the space that is left, and returns the file."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 512):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return path


class Ext4:
    """A file system that is mounted at `folder`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image

    def cut_power(self) -> None:
        """Loses everything that is not on the disk yet. After that, no file can be used."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(handle)

    def mount_again(self) -> None:
        """Mounts the file system as after a power loss: ext4 replays its journal.

        No process may use the file system.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while subprocess.run(["umount", self.folder], check=False).returncode:
            users = subprocess.run(
                ["fuser", "-vm", self.folder], capture_output=True, text=True, check=False
            )
            assert time.monotonic() < deadline, users.stdout + users.stderr
            time.sleep(0.1)
        self._mount()

    def _mount(self) -> None:
        # The most common setting; bytes may reach the disk up to half a minute late.
        subprocess.run(["mount", "-o", "loop", self._image, self.folder], check=True)


@contextmanager
def mounted(scratch: Path) -> Iterator[Ext4]:
    """Makes and mounts a file system, and deletes it after the block."""
    image, folder = scratch / "disk.img", scratch / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(_MEGABYTES * 2**20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    made = Ext4(image, folder)
    made._mount()
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        image.unlink()
