"""A disk that loses power: what was not synced is lost, torn or reordered.

The module watches `os.fsync` of this process. A file's bytes are durable once the file was synced,
and a name in a folder once the folder was synced. `cut` creates the folder again as a power loss
may leave it: each name that is not durable may be there or not, independently. Bytes that are not
durable are all there, none, some, or zeros. No file system loses more, and most lose less.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

Inode = tuple[int, int]


@dataclass
class Disk:
    """The part of a disk below one folder."""

    root: Path
    draw: random.Random
    # Called before each sync: a test dies there.
    before_sync: Callable[[], None] = lambda: None
    lasting_bytes: dict[Inode, bytes] = field(default_factory=dict)
    lasting_names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)
    # Open handles: while one is open, no other file has its inode.
    _handles: dict[Inode, int] = field(default_factory=dict)
    lost: int = 0
    torn: int = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches all syncs within the block. What is there at the start is durable."""
        synced = os.fsync
        self._settle()

        def sync(handle: int) -> None:
            self.before_sync()
            # This disk is made by hand: the machine's own need not wait.
            self._note(handle)

        os.fsync = sync
        try:
            yield
        finally:
            os.fsync = synced
            self._forget()

    def cut(self) -> None:
        """Leaves the folder as a power loss at this moment may leave it."""
        before = self.root.with_name(f"{self.root.name}.before")
        top = _inode(self.root.stat())
        before.mkdir()
        # The folder itself stays the one that it was: a root knows it by its inode.
        for each in [*self.root.iterdir()]:
            each.rename(before / each.name)
        self._now = {_inode(os.lstat(path)): path for path in before.rglob("*")} | {top: before}
        self._make(top, self.root)
        shutil.rmtree(before)
        self._forget()
        self._settle()

    def _make(self, folder: Inode, into: Path) -> None:
        lasting, now = self.lasting_names.get(folder, {}), self._names_now(folder)
        # In the order in which they were made: many names are of chance.
        for name, there in sorted(
            (
                (name, [each.get(name) for each in (lasting, now)])
                for name in lasting.keys() | now.keys()
            ),
            key=lambda each: (*(found or (0, 0) for found in each[1]), each[0]),
        ):
            found = self.draw.choice(there)
            self.lost += there[1] is not None and found != there[1]
            if found is None:
                continue
            if found in self.lasting_names or self._is_folder(found):
                (into / name).mkdir()
                self._make(found, into / name)
            else:
                (into / name).write_bytes(self._bytes(found))

    def _is_folder(self, inode: Inode) -> bool:
        # One that was deleted is known by its handle alone.
        if inode in self._handles:
            return stat.S_ISDIR(os.fstat(self._handles[inode]).st_mode)
        return inode in self._now and self._now[inode].is_dir()

    def _names_now(self, folder: Inode) -> dict[str, Inode]:
        path = self._now.get(folder)
        return (
            {} if path is None else {each.name: _inode(os.lstat(each)) for each in path.iterdir()}
        )

    def _bytes(self, file: Inode) -> bytes:
        lasting, path = self.lasting_bytes.get(file), self._now.get(file)
        now = None if path is None else path.read_bytes()
        if now is None or lasting == now:
            return lasting or b""
        if lasting is not None and self.draw.random() < 0.5:
            return lasting
        part = self.draw.randrange(len(now) + 1)
        left = self.draw.choice(
            [now, b"", now[:part], bytes(len(now)), now[:part] + bytes(len(now) - part)]
        )
        self.torn += left != now
        return left

    def _note(self, handle: int) -> None:
        found = os.fstat(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if not path.is_relative_to(self.root):
            return
        self._keep(_inode(found), path)
        if stat.S_ISDIR(found.st_mode):
            self.lasting_names[_inode(found)] = self._listed(path)
        else:
            self.lasting_bytes[_inode(found)] = path.read_bytes()

    def _listed(self, folder: Path) -> dict[str, Inode]:
        names = {}
        for each in folder.iterdir():
            inode = _inode(os.lstat(each))
            self._keep(inode, each)
            names[each.name] = inode
        return names

    def _keep(self, inode: Inode, path: Path) -> None:
        if inode not in self._handles:
            self._handles[inode] = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def _settle(self) -> None:
        for path in [self.root, *self.root.rglob("*")]:
            inode = _inode(os.lstat(path))
            self._keep(inode, path)
            if path.is_dir():
                self.lasting_names[inode] = self._listed(path)
            else:
                self.lasting_bytes[inode] = path.read_bytes()

    def _forget(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self.lasting_bytes.clear()
        self.lasting_names.clear()


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino
