"""The project files that a rehearsal needs, and the files by which an agent replaces them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from kappa.base.errors import UsageError
from kappa.code.sources import PIPELINES, Sources

# Where an agent may give files. kappa.toml is none of them: settings are a person's.
FOLDERS = (PIPELINES, "events", "boards", "schemas", "tests")
_SUFFIXES = frozenset(
    {".avsc", ".csv", ".json", ".jsonl", ".ndjson", ".proto", ".py", ".sql", ".toml", ".txt"}
)
_MOST_FILES, _MOST_BYTES = 100, 4 << 20
_MOST_OF_PROJECT = 64 << 20


def checked_files(given: Mapping[str, str]) -> Mapping[str, str]:
    """Checks the files that an agent sends, and returns the files by path. Pure.

    The key of each file is its path in the project. A file must be a text in one of the project's
    folders of code and samples, or a Python file next to `pipelines/`. Raises UsageError, with the
    path, if a file is not allowed.
    """
    if len(given) > _MOST_FILES or sum(map(len, given.values())) > _MOST_BYTES:
        raise UsageError(
            f"{len(given)} files were given, and at most {_MOST_FILES} of {_MOST_BYTES >> 20} MiB "
            "are taken",
            hint="give only the files that change",
        )
    for path, text in given.items():
        _check_path(path)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{path[:200]} has half of a character, which no file has",
                hint="give files of text",
            ) from None
        if "\0" in text:
            raise UsageError(f"{path[:200]} has a NUL character", hint="give files of text")
    return dict(sorted(given.items()))


def project_files(folder: Path, named: Iterable[str] = ()) -> Mapping[str, Path]:
    """Returns the files of a project's pipelines, by path relative to the project.

    The result contains the Python files, the texts in the folders of code and samples, and the
    files in `named`: the source files of existing builds. It does not contain links to files
    outside the project.
    """
    inside = folder.resolve()
    found = {
        path
        for path in (
            *Sources(folder).python_files(),
            *(each for name in FOLDERS for each in (folder / name).glob("**/*")),
            *(folder / name for name in named),
        )
        if path.is_file()
        and path.resolve().is_relative_to(inside)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and (path.suffix in _SUFFIXES or path.suffix == ".parquet")
    }
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def copy_project(files: Mapping[str, Path], into: Path, given: Mapping[str, str]) -> None:
    """Copies a project's files into the folder `into`, and replaces those that `given` contains.

    Both mappings have paths relative to the project as keys; the values of `given` are texts.
    Raises UsageError if the files of the project are too large for a rehearsal.
    """
    if sum(path.stat().st_size for path in files.values()) > _MOST_OF_PROJECT:
        raise UsageError(
            f"the files of the project take more than {_MOST_OF_PROJECT >> 20} MiB",
            hint="keep large files of events elsewhere than in events/",
        )
    for name, path in files.items():
        if name not in given:
            _put(into / name, path.read_bytes())
    for name, text in given.items():
        _put(into / name, text.encode())


def id_of(given: Mapping[str, str], ground: object) -> str:
    """Returns the id of a plan: a hash of an agent's files and of the project's state.

    `ground` describes the state of the project for which the plan was made.
    """
    content = json.dumps([given, ground], sort_keys=True, default=str)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:20]


def _check_path(path: str) -> None:
    pure = PurePosixPath(path)
    parts = pure.parts
    is_plain = (
        parts
        and not pure.is_absolute()
        and pure.as_posix() == path
        and len(path) <= 200
        and path.isprintable()
        and "\\" not in path
        and not any(part.startswith(".") for part in parts)
    )
    is_placed = is_plain and (
        (len(parts) == 1 and pure.suffix == ".py") or (len(parts) > 1 and parts[0] in FOLDERS)
    )
    if not is_placed or pure.suffix not in _SUFFIXES:
        raise UsageError(
            f"{path[:200]!r} is no file that an agent gives",
            hint=f"give texts below {', '.join(f'{each}/' for each in FOLDERS)}, such as "
            "pipelines/web.py, or Python files beside them",
        )


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
