"""The schema files that declarations read: `Topic(event=Path("schemas/visit.json"))`.

A path is from the project's folder. A build runs from its snapshot alone. So the contents of each
schema file are remembered here as they were read, by the file that declares the event.
kappa/code/artifact.py puts them beside the code. One folder is opened at a time.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, SettingsError

# The opened folder, if any, and the schemas read by each of its files; paths are from that folder.
_opened: list[Path] = []
_read: defaultdict[str, dict[str, bytes]] = defaultdict(dict)


def open_schema_files(folder: Path) -> None:
    """Opens a folder: schema files are read from it, and those read before are forgotten."""
    _opened[:] = [folder]
    _read.clear()


def schema_files(paths: Iterable[str]) -> Mapping[str, bytes]:
    """Returns the contents of the schema files that declarations in these files have read.

    Contents are by path, as they were read; `paths` are from the opened folder.
    """
    return {schema: content for path in paths for schema, content in _read.get(path, {}).items()}


def read_schema_file(path: Path, declared_in: str) -> Mapping[str, Any]:
    """Reads the schema file that a declaration names.

    Raises DeclarationError if it cannot be read, or would be missing from a snapshot.
    """
    folder = _folder_of(declared_in)
    name = Path(os.path.normpath(path)).as_posix()
    if path.is_absolute() or name.startswith("../"):
        raise DeclarationError(
            f"{path} is not named from within the project, whose snapshot a build runs from",
            hint='name it from the folder of kappa.toml: event=Path("schemas/visit.json")',
        )
    try:
        content = (folder / name).read_bytes()
        schema = json.loads(content.decode(), object_pairs_hook=_object)
    except OSError as error:
        raise DeclarationError(
            f"{name} cannot be read: {error.strerror}", hint=f"schema files are named from {folder}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"{name} is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise DeclarationError(
            f"{name} is no JSON Schema of an event",
            hint='it is an object: {"type": "object", "properties": {...}}',
        )
    if _opened and folder == _opened[0]:
        _read[Path(declared_in).relative_to(folder).as_posix()][name] = content
    return schema


def _folder_of(declared_in: str) -> Path:
    """Returns the opened folder, or the project around a file imported without one, by a test."""
    if _opened and Path(declared_in).is_relative_to(_opened[0]):
        return _opened[0]
    # Costs a tenth of a second, and only tests of pipelines need it.
    from kappa.base.settings import find_project  # noqa: PLC0415

    try:
        return find_project(Path(declared_in).parent)
    except SettingsError:
        raise DeclarationError(
            f"a schema file is named in {declared_in}, which is in no project",
            hint="declare the topic in a file of the project",
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"{repeated!r} is twice in one object")
    return made
