"""The schema files that declarations read: `Topic(event=Path("schemas/visit.json"))`, named from the project's folder.

A build runs from its snapshot alone, so what a module reads besides Python while it is imported is remembered here, as it was
read, by the file that declares it; artifact.py puts it beside the code. As importer.py, it knows one opened folder at a time.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, SettingsError

# The opened folder (none: nothing was opened), and what was read by each of its files: both paths from that folder.
_opened: list[Path] = []
_read: defaultdict[str, dict[str, bytes]] = defaultdict(dict)


def open_schema_files(folder: Path) -> None:
    """From now on schema files are those of this folder, and none of them was read yet."""
    _opened[:] = [folder]
    _read.clear()


def schema_files(paths: Iterable[str]) -> Mapping[str, bytes]:
    """The schema files that the declarations in these files of the opened folder have read, by path, as they were then."""
    return {schema: content for path in paths for schema, content in _read.get(path, {}).items()}


def read_schema_file(path: Path, declared_in: str) -> Mapping[str, Any]:
    """The schema in a file that is named in another. Raises DeclarationError where it cannot be read, or would be missing from a snapshot."""
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
    """The opened folder; of a file that was imported without one, as tests do, the project around it."""
    if _opened and Path(declared_in).is_relative_to(_opened[0]):
        return _opened[0]
    from kappa.base.settings import find_project  # noqa: PLC0415  # costs a tenth of a second, and only tests of pipelines come here

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
        raise ValueError(
            f"{next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))!r} stands twice in one object"
        )
    return made
