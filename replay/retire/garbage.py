"""Garbage: what nothing needs any more below the root, by build and kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


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
    """Garbage of one build, or (None) of none: files and, deepest first, folders.

    Or `left`: why the build was passed over.
    """

    build: str | None
    what: What | None
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    bytes: int = 0
    left: str = ""

    @property
    def count(self) -> int:
        """The number of files; of empty folders, their number."""
        return len(self.files) or len(self.folders)


def garbage_files(build: str | None, what: What, paths: Iterable[Path]) -> Garbage:
    """Returns files as garbage of a build, or of none."""
    files = tuple(sorted(paths))
    return Garbage(build, what, files, bytes=_bytes(files))


def garbage_trees(build: str | None, what: What, tops: list[Path]) -> Garbage:
    """Returns all files and folders at and below `tops` as garbage."""
    every = [path for top in tops for path in (top, *top.rglob("*"))]
    files = tuple(sorted(path for path in every if not _is_folder(path)))
    return Garbage(
        build,
        what,
        files,
        _deepest_first(path for path in every if _is_folder(path)),
        _bytes(files),
    )


def emptied_folders(top: Path, doomed: Iterable[Garbage]) -> Garbage:
    """Returns the folders that will have no file once the `doomed` is deleted."""
    going = {path for find in doomed for path in (*find.files, *find.folders)}
    every = [path for path in top.rglob("*") if path not in going]
    holding = {parent for path in every if not _is_folder(path) for parent in path.parents}
    return Garbage(
        top.name,
        What.FOLDERS,
        folders=_deepest_first(path for path in every if _is_folder(path) and path not in holding),
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _deepest_first(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(sorted(folders, key=lambda path: (-len(path.parts), path)))


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.exists())
