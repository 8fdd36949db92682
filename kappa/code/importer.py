"""An importer of a project's modules from one folder: the working tree or a snapshot.

Only one folder is open at a time. Opening another folder forgets the modules of the folder before,
so that every opening is a fresh load. Nothing is put on `sys.path`, where a `pipelines/calendar.py`
would break pandas. No bytecode is kept: its time stamp counts whole seconds, and edits are quicker.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from kappa.code.sources import PIPELINES, Sources
from kappa.declare.project_files import open_named_files

# Spark's Python workers read this variable (engine/spark/workers.py), to import the same files.
FOLDER_VARIABLE = "KAPPA_SOURCES"


def open_sources(sources: Sources) -> None:
    """Makes imports find these files, in this process and in the workers that it starts."""
    # This import takes half a second: only loading a project pays, whose files import PySpark.
    from kappa.code.ddl import read_types_without_session  # noqa: PLC0415

    for importer in [each for each in sys.meta_path if isinstance(each, _Importer)]:
        sys.meta_path.remove(importer)
        _forget_modules(importer.given)
    _forget_modules(_stale_modules(sources))
    sys.meta_path.insert(0, _Importer(sources))
    importlib.invalidate_caches()
    open_named_files(sources.folder)
    read_types_without_session()
    os.environ[FOLDER_VARIABLE] = str(sources.folder)


class _Importer(MetaPathFinder):
    """A finder for the modules of a `Sources`, ahead of every other finder."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.given: set[str] = set()

    # importlib gives the arguments.
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        place = self._sources.locate_module(fullname)
        if place is None:
            return None
        self.given.add(fullname)
        if place.file is None:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place.folder)]
            return spec
        within = None if place.folder is None else [str(place.folder)]
        return spec_from_file_location(
            fullname,
            place.file,
            loader=_Loader(fullname, str(place.file)),
            submodule_search_locations=within,
        )


class _Loader(SourceFileLoader):
    """A loader that compiles a module anew from source each time."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True)


def _stale_modules(sources: Sources) -> set[str]:
    """Lists the modules that were imported from the folder of these sources."""
    within = f"{sources.folder}{os.sep}"
    return {
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == PIPELINES
        or (
            isinstance(file := getattr(module, "__file__", None), str)
            and file.startswith(within)
            and sources.locate_module(name) is not None
        )
    }


def _forget_modules(names: set[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
