"""The files that declarations name: the schema of an event, the rows of a table.

A build runs only from a code snapshot, which must contain these files. So this module stores the
content of each file that it reads, together with the path of the file whose declaration names it.
kappa/code/code_snapshot.py writes these contents into the snapshot, next to the code. Only the
files of one project at a time are stored (`open_named_files`).
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, SettingsError

# Each process that loads the project reads a table's file, and each build keeps the file.
_MOST_BYTES = 16 << 20
# The opened folder, if any, and the contents that each declaring file has named. Paths are from the
# opened folder.
_opened: list[Path] = []
_read: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
# The state of each file that a declaration asked for; None: the file did not exist.
_asked: dict[Path, tuple[int, ...] | None] = {}


class FileNotThere(DeclarationError):
    """The error for a file that a declaration names and that does not exist."""


def open_named_files(folder: Path) -> None:
    """Sets the project whose named files this module stores. `folder` is the project's folder.

    Deletes the stored contents of all files that were read before.
    """
    _opened[:] = [folder]
    _read.clear()
    _asked.clear()


def named_files_changed() -> bool:
    """Returns True if a file that a declaration names has changed, appeared or disappeared.

    The present state of each file is compared with its state when the declaration was loaded.
    """
    return any(_known_by(path) != known for path, known in _asked.items())


def named_files(paths: Iterable[str]) -> Mapping[str, bytes]:
    """Returns the contents of the files that declarations name, by the files' paths.

    `paths` are the paths of the files that contain these declarations. The contents are those at
    the time when the declarations were loaded. All paths are relative to the project's folder.
    """
    return {name: content for path in paths for name, content in _read.get(path, {}).items()}


def read_schema_file(path: Path, declared_in: str) -> Mapping[str, Any]:
    """Reads a JSON Schema that a declaration names. `path` is relative to the project's folder.

    `declared_in` is the file that contains the declaration. Raises DeclarationError if the schema
    file cannot be read, is not a JSON object, or is outside of the project; a file outside of the
    project would be missing in a code snapshot.
    """
    folder, name, content = _read_content(path, declared_in)
    try:
        schema = json.loads(content.decode(), object_pairs_hook=_unique_object)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"{name} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise DeclarationError(
            f"{name} is not a JSON Schema of an event",
            hint='it is an object: {"type": "object", "properties": {...}}',
        )
    _remember_file(folder, declared_in, name, content)
    return schema


def read_text_file(path: Path, declared_in: str) -> str:
    """Reads a text file that a declaration names. `path` is relative to the project's folder.

    `declared_in` is the file that contains the declaration. Raises DeclarationError if the text
    file cannot be read, is not text in UTF-8, or is outside of the project.
    """
    folder, name, content = _read_content(path, declared_in)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise DeclarationError(f"{name} is not text in UTF-8") from None
    _remember_file(folder, declared_in, name, content)
    return text


def _read_content(path: Path, declared_in: str) -> tuple[Path, str, bytes]:
    folder = _folder_of(declared_in)
    name = Path(os.path.normpath(path)).as_posix()
    if path.is_absolute() or name.startswith("../"):
        raise DeclarationError(
            f"{path} is not named from within the project, whose snapshot a build runs from",
            hint='name it from the folder of kappa.toml: event=Path("schemas/visit.json")',
        )
    _watch_file(folder, name)
    try:
        return folder, name, (folder / name).read_bytes()
    except OSError as error:
        kind = FileNotThere if isinstance(error, FileNotFoundError) else DeclarationError
        raise kind(
            f"{name} cannot be read: {error.strerror}", hint=f"schema files are named from {folder}"
        ) from None


def read_file_beside(path: str, declared_in: str) -> tuple[str, bytes]:
    """Reads a file that a declaration names by a path relative to the declaration's own folder.

    `declared_in` is the file that contains the declaration. Returns the path of the read file
    relative to the project's folder, and its content. Raises DeclarationError if the file cannot be
    read, is too large, or is outside of the project.
    """
    folder = _folder_of(declared_in)
    named = Path(os.path.normpath(Path(declared_in).parent.absolute() / path))
    hint = f"name it from {Path(declared_in).parent}, within the project"
    if Path(path).is_absolute() or not named.is_relative_to(folder):
        raise DeclarationError(
            f"{path} is not in the project, whose snapshot a build runs from", hint=hint
        )
    name = named.relative_to(folder).as_posix()
    _watch_file(folder, name)
    try:
        if not named.resolve().is_relative_to(folder.resolve()):
            raise DeclarationError(
                f"{name} leads out of the project, whose snapshot a build runs from", hint=hint
            )
        if not named.is_file():
            raise DeclarationError(
                f"{name} is {'not a file' if named.exists() else 'not there'}", hint=hint
            )
        size = named.stat().st_size
        if size > _MOST_BYTES:
            raise DeclarationError(
                f"{name} has {size:,} bytes, and a file that is kept with each build has at most"
                f" {_MOST_BYTES:,}",
                hint="produce its rows to a topic, and make a table of them",
            )
        content = named.read_bytes()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise DeclarationError(f"{path} cannot be read: {told}", hint=hint) from None
    _remember_file(folder, declared_in, name, content)
    return name, content


def _watch_file(folder: Path, name: str) -> None:
    if _opened and folder == _opened[0]:
        _asked[folder / name] = _known_by(folder / name)


def _known_by(path: Path) -> tuple[int, ...] | None:
    # A file may be written twice in one tick of the clock, or keep its time when a new file
    # replaces it.
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _remember_file(folder: Path, declared_in: str, name: str, content: bytes) -> None:
    if _opened and folder == _opened[0]:
        _read[Path(declared_in).relative_to(folder).as_posix()][name] = content


def _folder_of(declared_in: str) -> Path:
    """Returns the folder of the project that contains the file `declared_in`.

    This is the folder that `open_named_files` has set. For a file that a test has imported, it is
    the nearest project folder above the file. Raises DeclarationError if the file is in no project.
    """
    if _opened and Path(declared_in).is_relative_to(_opened[0]):
        return _opened[0]
    # The import costs a tenth of a second, and only tests of pipelines need it.
    from kappa.base.settings import find_project  # noqa: PLC0415

    try:
        return find_project(Path(declared_in).parent)
    except SettingsError:
        raise DeclarationError(
            f"a file is named in {declared_in}, which is in no project",
            hint="declare it in a file of the project",
        ) from None


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"{repeated!r} is twice in one object")
    return made
