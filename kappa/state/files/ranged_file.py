"""An object of a bucket as a file that is read from any place, by requests for its parts."""

from __future__ import annotations

import io
import os

from kappa.state.files.bucket import Bucket


class RangedFile(io.RawIOBase):
    """An object that exists and never changes; each read is a request."""

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket = bucket
        self._name = name
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to another place, and returns it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Returns the place that is read next."""
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # any buffer is one
        """Reads as much as fits, or as there is. Raises KappaError."""
        wanted = min(len(buffer), max(0, self._size - self._place))
        if wanted:
            buffer[:wanted] = self._bucket.part(self._name, self._place, wanted)
            self._place += wanted
        return wanted
