"""The Python files of a project, or of one build's code snapshot: which file a module name stands for.

One rule decides that for imports (importer.py), for the fingerprint (reach.py) and for snapshots (artifact.py), so that
what runs, what is hashed and what is kept are the same files. Reads files; imports none of them.
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
# Kappa's own packages stand outside every project; demo and tests only where the project is Kappa's own checkout.
_PLATFORM = frozenset({"kappa", "replay", "serving", "commands", "cli"})
_PLATFORM_AT_HOME = _PLATFORM | {"demo", "tests"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One module's file: `path` is relative to the project, with slashes."""

    module: str
    path: str
    content: bytes
    is_package: bool = False


# A module's file, or None where the name stands for nothing of the project.
Find = Callable[[str], SourceFile | None]


@dataclass(frozen=True, slots=True)
class Location:
    """Where a module lies: its file (None: a folder without `__init__.py`), and the folder of its submodules if it has any."""

    file: Path | None
    folder: Path | None


class Sources:
    """The modules below one folder: `pipelines.flights`, modules beside `pipelines/`, and those inside it by their bare name.

    The standard library and Kappa's own packages always win; an installed package wins over a bare name from inside
    `pipelines/`, so that `pipelines/delta.py` hides no library. Answers are kept: make a new one for a fresh look.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._foreign = sys.stdlib_module_names | (
            _PLATFORM_AT_HOME if self.folder == _HOME else _PLATFORM
        )
        self._bases: dict[str, Path | None] = {}

    def find(self, module: str) -> SourceFile | None:
        """The file that a module name stands for, or None where there is none in the project."""
        place = self.locate(module)
        if place is None or place.file is None:
            return None
        path = place.file.relative_to(self.folder).as_posix()
        return SourceFile(
            module, path, place.file.read_bytes(), is_package=place.folder is not None
        )

    def locate(self, module: str) -> Location | None:
        """Where a module lies, folders without a file of their own included."""
        top = module.partition(".")[0]
        if top not in self._bases:
            self._bases[top] = self._base(top)
        base = self._bases[top]
        return None if base is None else _at(base.joinpath(*module.split(".")))

    def pipeline_files(self) -> tuple[Path, ...]:
        """The files directly in `pipelines/`, by name."""
        return tuple(
            sorted(
                path
                for path in (self.folder / PIPELINES).glob("*.py")
                if path.is_file() and path.stem != "__init__"
            )
        )

    def python_files(self) -> tuple[Path, ...]:
        """The files that its modules most likely are: those of `pipelines/`, beside it, and in packages beside it. Other folders may hold anything, and very much."""
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

    def _base(self, top: str) -> Path | None:
        if top in self._foreign or not top.isidentifier():
            return None
        if _at(self.folder / top) is not None:
            return self.folder
        inside = self.folder / PIPELINES
        return inside if _at(inside / top) is not None and not _is_installed(top) else None


def _at(stem: Path) -> Location | None:
    # As Python's own finder: a package before a module of the same name, a bare folder last.
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
