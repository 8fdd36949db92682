"""Subjects of a registry, pinned by files of the project.

`kappa schemas pin` writes what a subject's version is to a file of the project. Declarations read
that file, and no registry: so a version reads its records in the same way wherever and whenever it
is loaded, and a build's code snapshot has the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from kappa.base.disk import put_file
from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.declare.formats.schema_source import RegisteredSchema
from kappa.declare.named_files import read_schema_file

# The project's folder of pins.
FOLDER = "schemas/pinned"


class PinnedSchema(Struct, frozen=True):
    """A version of a subject, as the registry had it when it was pinned."""

    subject: str
    version: int
    id: int
    schema: RegisteredSchema


def pin_path(subject: str) -> str:
    """Returns the path of a subject's pin, from the project's folder."""
    return f"{FOLDER}/{quote(subject, safe='')}.json"


@dataclass(frozen=True, slots=True, init=False)
class Subject:
    """A subject of the schema registry, as the schema of a format.

    `name` is the subject's. What it is was pinned by `kappa schemas pin`, so no declaration asks
    the registry; a `version` that is declared must be the pinned one.

    Example:
        Subject("orders-value")
        Subject("orders-value", version=3)
    """

    name: str
    version: int | None
    source: Source = field(compare=False)

    def __init__(self, name: str, *, version: int | None = None) -> None:
        source = Source.of_caller()
        if not isinstance(name, str) or not name:
            raise DeclarationError(
                f"{source}: {described(name)} is no name of a subject",
                hint='name it as the registry does: Subject("orders-value")',
            )
        if version is not None and (type(version) is not int or version < 1):
            raise DeclarationError(
                f"{source}: subject {name} has version {shown(version)}",
                hint="a version is a whole number from 1; without one it is what is pinned",
            )
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "version", version)
        set_field(self, "source", source)


def put_pin(project: Path, pin: PinnedSchema) -> None:
    """Writes a pin into a project's folder, in place of an earlier one."""
    path = project / pin_path(pin.subject)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_file(path, msgspec.json.format(msgspec.json.encode(pin), indent=2) + b"\n")


def pinned_in(project: Path) -> dict[str, int]:
    """Returns the pinned version of each subject of a project; what is no pin is left out."""
    found = {}
    for path in sorted((project / FOLDER).glob("*.json")):
        try:
            pin = msgspec.json.decode(path.read_bytes(), type=PinnedSchema)
        except (OSError, msgspec.MsgspecError):
            continue
        found[pin.subject] = pin.version
    return found


def read_pin(subject: Subject) -> PinnedSchema:
    """Reads the pin of a subject. Raises DeclarationError if it is not as declared."""
    which = "" if subject.version is None else f" --version {subject.version}"
    hint = f"pin it: kappa schemas pin {subject.name}{which}"
    path = pin_path(subject.name)
    try:
        found = read_schema_file(Path(path), subject.source.file)
    except DeclarationError as error:
        raise DeclarationError(
            f"subject {subject.name} is not pinned: {error.message}", hint=hint
        ) from None
    try:
        pin = msgspec.convert(found, PinnedSchema)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"{path} is no pin of a subject: {error}", hint=hint) from None
    if pin.subject != subject.name or subject.version not in {None, pin.version}:
        raise DeclarationError(
            f"{path} has version {pin.version} of subject {pin.subject}, and "
            f"{f'version {subject.version}' if subject.version else subject.name} is declared",
            hint=hint,
        )
    return pin
