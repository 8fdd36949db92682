"""Files that this host writes for a root, or takes from it, by path or URL."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kappa.base.disk import delete_file, link_file
from kappa.state.files.address import gone, split
from kappa.state.files.bucket import is_bucket


@contextmanager
def writing(address: str) -> Iterator[Path]:
    """Gives a path of this machine: what is written there is at the address after the block.

    It is there whole, and not at all if the block fails.
    """
    path = Path(address)
    if not is_bucket(address):
        # Spark, Arrow and DuckDB take no file that begins so for data; a lost task writes on.
        hidden = path.with_name(f"_{secrets.token_hex(4)}-{path.name}")
        hidden.parent.mkdir(parents=True, exist_ok=True)
        yield hidden
        hidden.replace(path)
        return
    with tempfile.TemporaryDirectory(prefix="kappa-") as folder:
        written = Path(folder) / path.name
        yield written
        place_file(written, address)


def copy_file(address: str, to: str) -> None:
    """Copies a file, whole, to another root. Raises OSError if it does not exist (any more)."""
    with writing(to) as path:
        if is_bucket(address):
            fetch_file(address, path)
        else:
            shutil.copyfile(address, path)


def place_file(path: Path, address: str) -> None:
    """Moves a file that this host has written to its address, which may be where it is."""
    if is_bucket(address):
        bucket, name = split(address)
        bucket.put_file(name, path)
        delete_file(path)
    else:
        path.replace(address)


def put_data_file(path: Path, url: str) -> None:
    """Copies a table's file, whose name is by chance, to a bucket; no claim is looked at."""
    bucket, name = split(url)
    bucket.put_file(name, path, claimed=False)


def share_file(address: str, to: str) -> None:
    """Gives a file that never changes a second name; each is deleted by itself.

    On a disk it is a link, or a copy if the disk has no links. In a bucket the server copies it,
    and from a bucket to the disk it is fetched. Raises FileNotFoundError if it does not exist (any
    more), and OSError if the disk has no room.
    """
    if not is_bucket(to):
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        if is_bucket(address):
            fetch_file(address, Path(to))
        else:
            link_file(Path(address), Path(to))
        return
    bucket, name = split(address)
    into, copy_name = split(to)
    assert into is bucket, f"{to} is below another root than {address}"
    if not bucket.copy(name, copy_name):
        raise gone(address)


def _any_room(_: int) -> None:
    """Takes all the room there is."""


def _is_wanted() -> None:
    """Lets the rest of a file be fetched."""


def fetch_file(
    url: str,
    to: Path,
    take_room: Callable[[int], None] = _any_room,
    go_on: Callable[[], None] = _is_wanted,
) -> None:
    """Copies a file of a bucket to the disk, once `take_room` has returned for so many bytes.

    `go_on` is called before each piece, and what it raises ends the transfer. Raises
    FileNotFoundError if it does not exist (any more), OSError if it cannot be written, and
    KappaError if it cannot be read.
    """
    bucket, name = split(url)
    found = bucket.pieces(name)
    if found is None:
        raise gone(url)
    size, pieces = found
    take_room(size)
    with to.open("wb") as file:
        for piece in pieces:
            go_on()
            file.write(piece)
