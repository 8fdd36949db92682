"""Schemas that records were written with, by the ids that a registry gave them.

A process opens the source that it has; those of the project's declarations need none. Ids are
immutable, so what a source answers for an id it answers for ever.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kappa.base.errors import KappaError
from kappa.declare.values.reason import Reason, Rejected

# The Confluent wire form: a zero, the schema's id in four bytes, the message.
MAGIC = 0
FRAME_BYTES = 5
# A reader remembers that it cannot use a schema up to so many of them: any producer can write any
# id.
MOST_WRITERS = 1_000


class RegisteredSchema(Struct, frozen=True):
    """A schema as a registry has it; `references` are the texts it needs, each before its users.

    `kind` is AVRO, JSON or PROTOBUF. An id that the registry does not know has no `text`.
    """

    kind: str
    text: str | None
    references: tuple[str, ...] = ()


class SchemaSource(Protocol):
    """A source of schemas. It is sent to Spark's workers."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema of an id. Raises Unreachable if the registry does not answer."""


_opened: list[SchemaSource] = []


def open_schemas(source: SchemaSource | None) -> None:
    """Opens the source that readers of this process ask from now on."""
    _opened[:] = [] if source is None else [source]


def opened_schemas() -> SchemaSource | None:
    """Returns the source that is open, or None."""
    return _opened[0] if _opened else None


def written_by(schema_id: int) -> RegisteredSchema:
    """Returns the schema of an id. Raises Rejected if the registry does not know it."""
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


def unframed(value: bytes) -> tuple[int, bytes]:
    """Splits a value into its schema's id and its message. Raises Rejected if it has none."""
    if len(value) < FRAME_BYTES or value[0] != MAGIC:
        what = f"begins with byte {value[0]}" if value else "is empty"
        what = what if not value or value[0] != MAGIC else f"has {len(value)} bytes"
        raise Rejected(
            Reason.NO_SCHEMA_ID, f"the value {what}, not with a zero and a schema's id of 4 bytes"
        )
    return int.from_bytes(value[1:FRAME_BYTES]), value[FRAME_BYTES:]


def framed(schema_id: int, message: bytes) -> bytes:
    """Puts a schema's id before a message."""
    return bytes([MAGIC]) + schema_id.to_bytes(FRAME_BYTES - 1) + message
