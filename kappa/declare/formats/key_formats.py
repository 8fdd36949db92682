"""The formats of topics' Kafka keys: any format of records, with one field."""

from __future__ import annotations

from kappa.base.errors import DeclarationError
from kappa.declare.formats.named import format_of
from kappa.formats.format import RecordFormat
from kappa.values.columns import Column
from kappa.values.schema_place import SchemaPlace


def key_format_of(given: object, key: Column | None) -> RecordFormat | None:
    """Returns the format that a topic declares for its keys; None if they are plain text.

    Raises DeclarationError if it is none, or has another key than the column.
    """
    if given is None:
        return None
    if key is None:
        raise DeclarationError(
            "keys have a format, and no column is declared that they repeat",
            hint='name it: key="id"',
        )
    form = format_of(given)
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
