"""Schemas of a registry: pinned subjects, and the schemas with which records were written.

`kappa schemas pin` writes a version of a subject into a file of the project. Declarations read that
file, and do not contact the registry. So a version of a pipeline reads records in the same way
wherever and whenever it is loaded. The code snapshot of a build contains the file.

A record contains the registry's id of the schema with which it was written. A process that reads
records sets an object that returns schemas by id, the schema source; a process that only loads
declarations needs none. An id always refers to the same schema, so a schema can be cached without
limit of time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from kappa.base.disk import put_file
from kappa.base.errors import DeclarationError, KappaError
from kappa.base.source import Source
from kappa.declare.options import describe_value, option_text
from kappa.declare.project_files import read_schema_file
from kappa.declare.values.reason import Reason, Rejected

# The Confluent wire form: a zero, the schema's id in four bytes, the message.
MAGIC = 0
FRAME_BYTES = 5
# A reader remembers at most so many schemas that the reader cannot use: any producer can write any
# id.
_MOST_WRITERS = 1_000
_opened: list[SchemaSource] = []
# The project's folder for pins.
FOLDER = "schemas/pinned"


class RegisteredSchema(Struct, frozen=True):
    """A schema of a registry, with the schemas that it refers to.

    `kind` is AVRO, JSON or PROTOBUF. `text` is the schema's text, or None if the registry does not
    know the id. `references` are the texts of the other schemas; each text comes before the texts
    that refer to it.
    """

    kind: str
    text: str | None
    references: tuple[str, ...] = ()


class SchemaSource(Protocol):
    """An object that returns the schemas of a registry by their ids.

    Each Spark worker receives a copy of the object.
    """

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with an id. Raises Unreachable if the registry does not answer."""


def open_schemas(source: SchemaSource | None) -> None:
    """Sets the object that returns a registry's schemas by id, for all readers in this process.

    None removes the object.
    """
    _opened[:] = [] if source is None else [source]


def opened_schemas() -> SchemaSource | None:
    """Returns the object that returns a registry's schemas in this process, or None.

    The result is None if `open_schemas` has set no such object.
    """
    return _opened[0] if _opened else None


def writer_schema(schema_id: int) -> RegisteredSchema:
    """Returns the schema with an id in the registry.

    Raises Rejected if the registry does not know the id, and KappaError if this process has no
    `SchemaSource`.
    """
    if not _opened:
        raise KappaError(
            f"a record was written with schema {schema_id}, and no registry is set to ask for it",
            hint='set it in kappa.toml: [registry] url = "http://127.0.0.1:8081"',
        )
    found = _opened[0].schema(schema_id)
    if found.text is None:
        raise Rejected(
            Reason.UNKNOWN_SCHEMA,
            f"the value was written with schema {schema_id}, which the registry does not know",
        )
    return found


def remember_writer(writers: dict[int, Any], schema_id: int, writer: object) -> None:
    """Caches a writer's schema in `writers`, with the schema's id as the key.

    If the schema cannot be used, `writer` is a Rejected that contains the reason. A Rejected is
    cached only while `writers` has fewer than 1,000 entries, because producers can write any number
    of ids.
    """
    if not isinstance(writer, Rejected) or len(writers) < _MOST_WRITERS:
        writers[schema_id] = writer


def split_frame(value: bytes) -> tuple[int, bytes]:
    """Splits a value into the schema's id and the message.

    Raises Rejected if the value does not begin with a zero byte and four bytes of an id.
    """
    if len(value) < FRAME_BYTES or value[0] != MAGIC:
        what = f"begins with byte {value[0]}" if value else "is empty"
        what = what if not value or value[0] != MAGIC else f"has {len(value)} bytes"
        raise Rejected(
            Reason.NO_SCHEMA_ID, f"the value {what}, not with a zero and a schema's id of 4 bytes"
        )
    return int.from_bytes(value[1:FRAME_BYTES]), value[FRAME_BYTES:]


def frame_message(schema_id: int, message: bytes) -> bytes:
    """Returns a value that begins with a schema's id, followed by the message."""
    return bytes([MAGIC]) + schema_id.to_bytes(FRAME_BYTES - 1) + message


class PinnedSchema(Struct, frozen=True):
    """A version of a subject that a file of the project pins, and the schema of this version."""

    subject: str
    version: int
    id: int
    schema: RegisteredSchema


def pin_path(subject: str) -> str:
    """Returns the path of the file that pins a subject, relative to the project's folder."""
    return f"{FOLDER}/{quote(subject, safe='')}.json"


@dataclass(frozen=True, slots=True, init=False)
class Subject:
    """A subject of the schema registry. Its pinned version is the schema of a format.

    `name` is the name of the subject. `kappa schemas pin` pins a version of the subject in the
    project, so a declaration does not contact the registry. If `version` is declared, it must be
    the pinned version.

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
                f"{source}: {describe_value(name)} is not a valid subject name",
                hint='name it as the registry does: Subject("orders-value")',
            )
        if version is not None and (type(version) is not int or version < 1):
            raise DeclarationError(
                f"{source}: subject {name} has version {option_text(version)}",
                hint="a version is a whole number from 1; without one it is what is pinned",
            )
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "version", version)
        set_field(self, "source", source)


def put_pin(project: Path, pin: PinnedSchema) -> None:
    """Writes the file of the project that pins a version of a subject.

    An existing file for the subject is overwritten.
    """
    path = project / pin_path(pin.subject)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_file(path, msgspec.json.format(msgspec.json.encode(pin), indent=2) + b"\n")


def pinned_in(project: Path) -> dict[str, int]:
    """Returns the pinned version of each subject in a project, by the subject's name.

    Files that do not pin a subject are skipped.
    """
    found = {}
    for path in sorted((project / FOLDER).glob("*.json")):
        try:
            pin = msgspec.json.decode(path.read_bytes(), type=PinnedSchema)
        except (OSError, msgspec.MsgspecError):
            continue
        found[pin.subject] = pin.version
    return found


def read_pin(subject: Subject) -> PinnedSchema:
    """Reads the pinned version of a subject from the project.

    Raises DeclarationError if the subject is not pinned, or if its pinned version is not the
    declared version.
    """
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
        raise DeclarationError(f"{path} is not a pinned subject: {error}", hint=hint) from None
    if pin.subject != subject.name or subject.version not in {None, pin.version}:
        raise DeclarationError(
            f"{path} has version {pin.version} of subject {pin.subject}, and "
            f"{f'version {subject.version}' if subject.version else subject.name} is declared",
            hint=hint,
        )
    return pin
