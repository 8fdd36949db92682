"""The formats that a topic may declare; a new one has a line here."""

from __future__ import annotations

from kappa.base.errors import DeclarationError
from kappa.declare.described import described
from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.debezium.changes import Debezium
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.pinned import PinnedSchema
from kappa.declare.formats.protobuf.protobuf_events import Protobuf
from kappa.declare.formats.text_events import ACCESS_PATTERN, ACCESS_TIMES, Text

NAMED: dict[str, RecordFormat] = {
    "json": Json(),
    "csv": Csv(),
    "debezium-json": Debezium(),
    "debezium-avro": Debezium("avro"),
    "access-log": Text(ACCESS_PATTERN, times=ACCESS_TIMES, null="-"),
}
_REGISTERED = Avro | Json | Protobuf
_KINDS = (Json, Csv, Text, Avro, Protobuf, Debezium)


def pin_of(form: RecordFormat) -> PinnedSchema | None:
    """Returns the pinned version of a subject that a format reads by, or None."""
    return form.pin if isinstance(form, _REGISTERED) else None


def is_framed(form: RecordFormat) -> bool:
    """Returns True if records begin with the id of a registry's schema."""
    if isinstance(form, Debezium):
        return form.encoding == "avro"
    return isinstance(form, _REGISTERED) and form.framed


def changes_of(form: RecordFormat) -> Debezium | None:
    """Returns the format if its records are changes at a source, else None."""
    return form if isinstance(form, Debezium) else None


def format_of(given: object) -> RecordFormat:
    """Returns the format that a topic declares, by name or as a value.

    Raises DeclarationError if it is none.
    """
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if isinstance(given, _KINDS):
        return given
    raise DeclarationError(
        f"format is {described(given)}, which is no format of records",
        hint=f"a format is {', '.join(map(repr, NAMED))}, or a value: "
        r'Csv(separator=";"), Text(r"(?P<at>\S+) (?P<message>.*)"), Avro("schemas/order.avsc")',
    )
