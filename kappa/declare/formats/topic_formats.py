"""The formats that a topic may declare for its values and its keys.

To add a format, add an entry to `NAMED` or `_KINDS`.
"""

from __future__ import annotations

from kappa.base.errors import DeclarationError, did_you_mean
from kappa.base.source import Source
from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.debezium_events import Debezium
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.protobuf_events import Protobuf
from kappa.declare.formats.registry_schemas import PinnedSchema
from kappa.declare.formats.text_events import ACCESS_PATTERN, ACCESS_TIMES, Text
from kappa.declare.options import describe_value, error_prefix
from kappa.declare.values.columns import INTEGERS, Column, Scalar
from kappa.declare.values.json_schema import SchemaPlace

NAMED: dict[str, RecordFormat] = {
    "json": Json(),
    "csv": Csv(),
    "debezium-json": Debezium(),
    "debezium-avro": Debezium("avro"),
    "access-log": Text(ACCESS_PATTERN, times=ACCESS_TIMES, null="-"),
}
_REGISTERED = Avro | Json | Protobuf
_KINDS = (Json, Csv, Text, Avro, Protobuf, Debezium)
KEY_TYPES = frozenset({"string", *INTEGERS})


def pin_of(form: RecordFormat) -> PinnedSchema | None:
    """Returns the pinned schema of the subject that a format uses, or None without a subject."""
    return form.pin if isinstance(form, _REGISTERED) else None


def is_framed(form: RecordFormat) -> bool:
    """Returns True if records of a format begin with the id of a registry's schema."""
    if isinstance(form, Debezium):
        return form.encoding == "avro"
    return isinstance(form, _REGISTERED) and form.framed


def changes_of(form: RecordFormat) -> Debezium | None:
    """Returns the format `form` if its records are changes of a database's rows, otherwise None."""
    return form if isinstance(form, Debezium) else None


def format_of(given: object) -> RecordFormat:
    """Returns the format that a topic declares, either by its name or as an object.

    Raises DeclarationError if `given` is not a format.
    """
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if isinstance(given, _KINDS):
        return given
    raise DeclarationError(
        f"format is {describe_value(given)}, which is not a format of records",
        hint=f"a format is {', '.join(map(repr, NAMED))}, or a value: "
        r'Csv(separator=";"), Text(r"(?P<at>\S+) (?P<message>.*)"), Avro("schemas/order.avsc")',
    )


def keys_of(
    source: Source, topic: str, key: str | None, given: object, columns: tuple[Column, ...]
) -> RecordFormat | None:
    """Returns the format that a topic declares for its keys, or None if keys are plain text.

    `given` is the declared format, and `key` is the name of the topic's key column. Raises
    DeclarationError if `given` is not a format, or does not fit the key column.
    """
    if key is not None:
        _check_key(source, topic, key, columns)
    column = next((column for column in columns if column.name == key), None)
    with error_prefix(f"{source}: topic {topic}: key_format"):
        return _key_format(given, column)


def _key_format(given: object, key: Column | None) -> RecordFormat | None:
    if given is None:
        return None
    if key is None:
        raise DeclarationError(
            "keys have a format, and no column is declared that they repeat",
            hint='name it: key="id"',
        )
    form = format_of(given)
    if changes_of(form) is not None:
        raise DeclarationError(
            "a format of changes reads whole records, and no keys",
            hint="leave key_format out: such a format reads its records' keys itself",
        )
    (found,) = columns = key_columns(form, key)
    if str(found.type) != str(key.type):
        raise DeclarationError(
            f"the key is column {key.name}, a {key.type}, and the schema of keys has {found.type}",
            hint=f"declare the column as keys have it: {key.name} {found.type}",
        )
    form.check_event(columns, by_schema=isinstance(form.declared_event(), SchemaPlace))
    return form


def key_columns(form: RecordFormat, key: Column) -> tuple[Column]:
    """Returns the single column into which a format decodes keys.

    If the format declares no fields, the column has the name and the type of the topic's key
    column. Raises DeclarationError if the format's schema has several fields.
    """
    event = form.declared_event()
    found = event.columns if isinstance(event, SchemaPlace) else event
    if found is None:
        return (Column(key.name, key.type, nullable=False),)
    if len(found) != 1:
        raise DeclarationError(
            f"the schema of keys has the fields {', '.join(each.name for each in found)}, "
            "and a topic's key is one column",
            hint="if no table needs the key, leave out key and key_format: none is looked at then",
        )
    return (found[0],)


def _check_key(source: Source, topic: str, key: object, columns: tuple[Column, ...]) -> None:
    types = {column.name: column.type for column in columns}
    if not isinstance(key, str) or key not in types:
        called = key if isinstance(key, str) else describe_value(key)
        raise DeclarationError(
            f"{source}: topic {topic} has no column {called}, its key",
            hint=f"{did_you_mean(called, types)} its columns are {', '.join(types)}".lstrip(),
        )
    kind = types[key]
    if not isinstance(kind, Scalar) or kind.name not in KEY_TYPES:
        raise DeclarationError(
            f"{source}: topic {topic} has a key of type {kind}",
            hint="a key is a string or a whole number, as text in Kafka",
        )
