"""Creates a new project from a template, and finds the commands that a user types next.

Templates are folders of complete projects in kappa/templates. The files in `_shared` belong to
every template. The first block of commands in a template's README contains the commands to type
next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from kappa.base.errors import UsageError, did_you_mean
from kappa.base.program import hand_out

_SHARED = "_shared"
# A checkout's templates are tested in place, which leaves folders that no project begins with.
_LEFT_BEHIND = {"__pycache__", ".pytest_cache", ".kappa"}
_NAME = re.compile(r"\w[\w.-]*")
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def template_names() -> tuple[str, ...]:
    """Returns the names of all templates, in alphabetical order."""
    return tuple(sorted(each.name for each in _templates().iterdir() if _is_template(each)))


def template_files(template: str) -> dict[str, bytes]:
    """Returns the contents of a template's files, by their paths in a project.

    Raises UsageError if there is no template of that name.
    """
    if template not in template_names():
        names = ", ".join(template_names())
        near = did_you_mean(template, template_names())
        raise UsageError(
            f"there is no template {template}", hint=f"{near} there are {names}".lstrip()
        )
    found = dict(_files_below(_templates() / _SHARED)) | dict(_files_below(_templates() / template))
    return dict(sorted(found.items()))


def next_commands(template: str) -> tuple[str, ...]:
    """Returns the commands that a user types in a new project, up to the first query."""
    first = _COMMANDS.search(template_files(template)["README.md"].decode())
    assert first is not None, "tests hold each README to it"
    return tuple(first[1].splitlines())


def create_project(name: str, template: str, *, beside: Path = Path()) -> tuple[str, ...]:
    """Writes the files of a template into the folder `name`, and returns their paths.

    A relative `name` is a path in the folder `beside`. Raises UsageError, and writes nothing, if
    the name is not valid, if there is no such template, or if one of the files already exists.
    """
    folder = beside / _project_folder(name)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, and a project is a folder", hint="give another name")
    files = template_files(template)
    taken = [path for path in files if _is_taken(folder, path)]
    if taken:
        raise UsageError(
            f"{folder.absolute()} has {', '.join(taken)} already, so nothing was written",
            hint="give another name, or move these files away",
        )
    for path, content in files.items():
        file = folder / path
        _make_folder(file.parent)
        with file.open("xb") as made:
            made.write(content)
        hand_out(file)
    return tuple(files)


def _templates() -> Traversable:
    return resources.files("kappa").joinpath("templates")


def _is_template(folder: Traversable) -> bool:
    return folder.is_dir() and folder.name != _SHARED and folder.name not in _LEFT_BEHIND


def _files_below(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_file():
            yield f"{path}{each.name}", each.read_bytes()
        elif each.name not in _LEFT_BEHIND:
            yield from _files_below(each, f"{path}{each.name}/")


def _project_folder(name: str) -> Path:
    folder = Path(name)
    is_here = name != "" and folder == Path()
    if not is_here and not _NAME.fullmatch(folder.name):
        raise UsageError(
            f"{name!r} is not a valid project name",
            hint="a name has letters, digits, _, - and . in it: kappa init shop; "
            "this folder: kappa init .",
        )
    return folder


def _is_taken(folder: Path, path: str) -> bool:
    """Returns True if the file `path` cannot be created in a folder because of an existing file.

    The existing file may be at `path`, or at the path of one of the folders above it.
    """
    file = folder / path
    inner = [each for each in file.parents if each.is_relative_to(folder) and each != folder]
    return (
        file.exists()
        or file.is_symlink()
        or any(each.exists() and not each.is_dir() for each in inner)
    )


def _make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents, with the mode that the user's umask allows."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        hand_out(folder)
