"""Failing calls of the operating system: those that put and sync files."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kappa.base.errors import KappaError
from kappa.state.store import Store

ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EDQUOT, errno.EROFS)


class Faults:
    """Faults that make each call fail with some probability, while they are `on`."""

    def __init__(self, root: Path, draw: random.Random, share: float) -> None:
        self._root = root
        self._draw = draw
        self._share = share
        self.on = True
        self.count = 0

    def strike(self, path: object) -> None:
        """Raises an OSError with some probability."""
        if self.on and str(self._root) in str(path) and self._draw.random() < self._share:
            self.count += 1
            number = self._draw.choice(ERRORS)
            raise OSError(number, os.strerror(number), str(path))

    @contextmanager
    def over(self) -> Iterator[None]:
        """Switches the faults off within the block."""
        self.on, before = False, self.on
        try:
            yield
        finally:
            self.on = before

    @contextmanager
    def injected(self) -> Iterator[None]:
        """Makes the calls fail within the block. A failing write may have written a part."""
        link, fsync, replace = os.link, os.fsync, os.replace
        path_open, path_rename = Path.open, Path.rename
        mkdir, unlink, read = Path.mkdir, Path.unlink, Store.get

        def failing(call: Callable[..., Any]) -> Callable[..., Any]:
            def act(*arguments: Any, **named: Any) -> Any:
                self.strike(arguments[-1] if call is link else arguments[0])
                return call(*arguments, **named)

            return act

        def synced(handle: int) -> None:
            self.strike(Path(f"/proc/self/fd/{handle}").readlink())
            fsync(handle)

        def opened(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if "x" in mode or "w" in mode:
                self.strike(path)
                if self.on and self._draw.random() < self._share:
                    # A short write: some bytes, and then no space.
                    path.write_bytes(b"{")
                    self.count += 1
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return path_open(path, mode, *arguments, **named)

        def got(store: Store, name: str) -> bytes | None:
            # As obstore's error of a read is told.
            try:
                self.strike(store.address(name))
            except OSError as error:
                raise KappaError(f"could not read {name}: {error}", hint="see the disk") from error
            return read(store, name)

        os.link, os.fsync, os.replace = failing(link), synced, failing(replace)
        Path.mkdir, Path.unlink, Store.get = failing(mkdir), failing(unlink), got  # type: ignore[method-assign]
        Path.open, Path.rename = opened, failing(path_rename)  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            os.link, os.fsync, os.replace = link, fsync, replace
            Path.open, Path.rename = path_open, path_rename  # type: ignore[method-assign]
            Path.mkdir, Path.unlink, Store.get = mkdir, unlink, read  # type: ignore[method-assign]
