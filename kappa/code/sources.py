"""The Python files of a project, or of one build's code snapshot, by module name.

This module finds the files for imports (importer.py), for the fingerprint (reach.py) and for code
snapshots (code_snapshot.py). So Kappa hashes and stores the same files that run. This module reads
files, but does not import them.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

PIPELINES = "pipelines"
_HOME = Path(__file__).parents[2]
# Kappa's own package is part of no project, and neither are its neighbours in a checkout.
_PLATFORM = frozenset({"kappa"})
_PLATFORM_AT_HOME = _PLATFORM | {"replay", "serving", "cli", "demo", "tests"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file of a module. `path` is relative to the project, with slashes."""

    module: str
    path: str
    content: bytes
    is_package: bool = False


# Returns a module's file, or None if the project has no module of this name.
Find = Callable[[str], SourceFile | None]


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a module: its file, and the folder of its submodules if it is a package.

    `file` is None for a folder without `__init__.py`.
    """

    file: Path | None
    folder: Path | None


class Sources:
    """The modules of the project in one folder.

    The modules in `pipelines/` have names such as `pipelines.flights`, and also bare names such as
    `flights`. The modules in the project's folder itself have bare names. If two modules have the
    same name, a module of the standard library or of Kappa takes precedence over a module of the
    project. An installed package takes precedence over a bare name in `pipelines/`, so that
    `pipelines/delta.py` does not hide a library. Results are cached: create a new `Sources` to see
    changed files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._foreign = sys.stdlib_module_names | (
            _PLATFORM_AT_HOME if self.folder == _HOME else _PLATFORM
        )
        self._bases: dict[str, Path | None] = {}

    def find(self, module: str) -> SourceFile | None:
        """Returns the file of a module, or None if the project has no file for this module."""
        place = self.locate_module(module)
        if place is None or place.file is None:
            return None
        path = place.file.relative_to(self.folder).as_posix()
        return SourceFile(
            module, path, place.file.read_bytes(), is_package=place.folder is not None
        )

    def locate_module(self, module: str) -> Location | None:
        """Returns the location of a module, or None if the project does not have the module.

        A folder without an `__init__.py` is a module too.
        """
        top = module.partition(".")[0]
        if top not in self._bases:
            self._bases[top] = self._base_folder(top)
        base = self._bases[top]
        return None if base is None else _location_at(base.joinpath(*module.split(".")))

    def pipeline_files(self) -> tuple[Path, ...]:
        """Returns the Python files directly in `pipelines/`, sorted by name, except `__init__.py`.

        The result does not contain hidden files, since editors create such files.
        """
        return tuple(
            sorted(
                path
                for path in (self.folder / PIPELINES).glob("[!.]*.py")
                if path.is_file() and path.stem != "__init__"
            )
        )

    def python_files(self) -> tuple[Path, ...]:
        """Returns the Python files that are probably modules of the project.

        These are the files in the project's folder, in `pipelines/`, in packages in the project's
        folder, and in subfolders of `pipelines/`. Files in other folders are not returned, since
        such folders may contain very many files.
        """
        folders = [
            self.folder,
            self.folder / PIPELINES,
            *(init.parent for init in self.folder.glob("[!.]*/__init__.py")),
            *(self.folder / PIPELINES).glob("[!.]*/"),
        ]
        found = {path for folder in folders for path in folder.glob("*.py")}
        return tuple(
            sorted(
                path
                for path in found
                if path.relative_to(self.folder).parts[0].removesuffix(".py") not in self._foreign
            )
        )

    def changed_at(self) -> dict[Path, int]:
        """Returns the time of each file's last change, in nanoseconds since 1970, by path.

        The files are those of `python_files`. The result does not contain files that cannot be
        read.
        """
        found = {}
        for path in self.python_files():
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:
                # The file is being replaced: the next look sees the new file.
                continue
        return found

    def _base_folder(self, top: str) -> Path | None:
        if top in self._foreign or not top.isidentifier():
            return None
        if _location_at(self.folder / top) is not None:
            return self.folder
        inside = self.folder / PIPELINES
        return inside if _location_at(inside / top) is not None and not _is_installed(top) else None


def _location_at(stem: Path) -> Location | None:
    # In the order of Python's own finder: a package, a module of the same name, a bare folder.
    init = stem / "__init__.py"
    if init.is_file():
        return Location(init, stem)
    file = stem.with_name(f"{stem.name}.py")
    if file.is_file():
        return Location(file, None)
    if stem.is_dir() and any(True for pattern in ("*.py", "*/*.py") for _ in stem.glob(pattern)):
        return Location(None, stem)
    return None


def _is_installed(top: str) -> bool:
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = PathFinder.find_spec(top, sorted(places))
    return found is not None and found.origin is not None
