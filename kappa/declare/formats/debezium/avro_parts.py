"""Changes and keys in Avro, each by the schema of a registry that it was written with."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.errors import DeclarationError
from kappa.declare.formats.avro_schema import AvroSchema, parsed, read_record, why_unreadable
from kappa.declare.formats.debezium.envelope import TakenApart
from kappa.declare.formats.debezium.written import Written, of_avro
from kappa.declare.formats.schema_source import MOST_WRITERS, unframed, written_by
from kappa.declare.values.reason import Reason, Rejected

_KIND = "AVRO"


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema that records were written with."""

    schema: AvroSchema

    def written(self) -> Written:
        return of_avro(self.schema.whole, self.schema.named)


class AvroParts:
    """A reader that takes values and keys of Avro apart."""

    def __init__(self) -> None:
        # By id; or why records of it are rejects.
        self._writers: dict[int, _Writer | Rejected] = {}

    def value(self, value: bytes) -> TakenApart:
        """Takes a value apart. Raises Rejected if it is no record of a registered schema."""
        schema_id, message = unframed(value)
        writer = self._writers.get(schema_id) or _opened(schema_id)
        # Any producer can write any id.
        if not isinstance(writer, Rejected) or len(self._writers) < MOST_WRITERS:
            self._writers[schema_id] = writer
        if isinstance(writer, Rejected):
            raise Rejected(writer.reason, writer.detail)
        return TakenApart(read_record(message, writer.schema.bare), schema_id, writer.written)

    def key(self, key: bytes) -> TakenApart:
        """Takes a key apart. Raises Rejected if it is no record of a registered schema."""
        try:
            return self.value(key)
        except Rejected as error:
            raise Rejected(Reason.BAD_KEY, f"the key is no row's: {error.detail}") from None


def _opened(schema_id: int) -> _Writer | Rejected:
    try:
        found = written_by(schema_id)
    except Rejected as rejected:
        return rejected
    wrong = f"it is of type {found.kind}, not Avro" if found.kind != _KIND else None
    if wrong is None:
        try:
            schema = parsed(found.text or "", found.references)
            wrong = why_unreadable(schema)
        except DeclarationError as error:
            wrong = error.message
    if wrong is None and not (isinstance(schema.whole, dict) and "fields" in schema.whole):
        wrong = "it is no record"
    if wrong is not None:
        return Rejected(Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be read: {wrong}")
    return _Writer(schema)
