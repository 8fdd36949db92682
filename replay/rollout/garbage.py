"""Garbage: what nothing needs any more below the root and on this host, by build and kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kappa.state.files.address import Entry


class What(StrEnum):
    """A kind of garbage."""

    RETIRED = "retired build"
    ORPHAN = "build that was never staged"
    KEPT = "kept frontiers past their time"
    FRONTIERS = "frontiers before the newest"
    FILES = "files of tables"
    SCRATCH = "scratch of a job"
    FOLDERS = "empty folders"
    LEASES = "expired leases"
    DESCRIBED = "described pipelines"
    LEFT = "left by commands that died"
    UNFINISHED = "files that were being put"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Garbage of one build, or (None) of none: files and, deepest first, folders of the disk.

    Or `left`: why the build was passed over.
    """

    build: str | None
    what: What | None
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    bytes: int = 0
    left: str = ""

    @property
    def count(self) -> int:
        """The number of files; of empty folders, their number."""
        return len(self.files) or len(self.folders)


def garbage_of(build: str | None, what: What, entries: Iterable[Entry]) -> Garbage:
    """Returns files and folders as garbage of a build, or of none."""
    found = list(entries)
    files = sorted(each.address for each in found if not each.is_folder)
    folders = (each.address for each in found if each.is_folder)
    return Garbage(
        build,
        what,
        tuple(files),
        _deepest_first(folders),
        sum(each.size for each in found),
    )


def emptied_folders(build: str, below: Iterable[Entry], doomed: Iterable[Garbage]) -> Garbage:
    """Returns the folders that will have no file once the `doomed` is deleted."""
    going = {address for find in doomed for address in (*find.files, *find.folders)}
    left = [each for each in below if each.address not in going]
    holding = {
        str(parent) for each in left if not each.is_folder for parent in Path(each.address).parents
    }
    folders = (each.address for each in left if each.is_folder and each.address not in holding)
    return Garbage(build, What.FOLDERS, folders=_deepest_first(folders))


def _deepest_first(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(folders, key=lambda folder: (-folder.count("/"), folder)))
