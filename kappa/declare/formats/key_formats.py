"""The Kafka keys of topics: a column of theirs, as text or in any format of records."""

from __future__ import annotations

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.named import changes_of, format_of
from kappa.declare.values.columns import INTEGERS, Column, Scalar
from kappa.declare.values.schema_place import SchemaPlace

KEY_TYPES = frozenset({"string", *INTEGERS})


def keys_of(
    source: Source, topic: str, key: str | None, given: object, columns: tuple[Column, ...]
) -> RecordFormat | None:
    """Returns the format that a topic declares for its keys; None if they are plain text.

    Raises DeclarationError if it is none, or a key of other columns.
    """
    if key is not None:
        _check_key(source, topic, key, columns)
    column = next((column for column in columns if column.name == key), None)
    try:
        return _key_format(given, column)
    except DeclarationError as error:
        raise DeclarationError(
            f"{source}: topic {topic}: key_format: {error.message}", hint=error.hint
        ) from None


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
    form.check_event(columns, by_schema=isinstance(form.event(), SchemaPlace))
    return form


def key_columns(form: RecordFormat, key: Column) -> tuple[Column]:
    """Returns the one field of keys: that of the format's schema, else one named as the column.

    Raises DeclarationError if the schema has several.
    """
    event = form.event()
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
        called = key if isinstance(key, str) else described(key)
        raise DeclarationError(
            f"{source}: topic {topic} has no column {called}, its key",
            hint=f"its columns are {', '.join(types)}",
        )
    kind = types[key]
    if not isinstance(kind, Scalar) or kind.name not in KEY_TYPES:
        raise DeclarationError(
            f"{source}: topic {topic} has a key of type {kind}",
            hint="a key is a string or a whole number, as text in Kafka",
        )
