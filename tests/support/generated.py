"""The writer of the generated pages (docs/generate.py), which is a script and not a module."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from house import HOUSE


def imported(name: str, path: Path) -> ModuleType:
    """Imports a file that belongs to no package."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = imported("generate", HOUSE / "docs" / "generate.py")
