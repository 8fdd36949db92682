"""Converts texts to the values of columns, for formats whose fields are texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.declare.values.columns import Array, Column, Scalar, Struct, Type
from kappa.declare.values.csv_text import text_reader
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def text_check(kind: Type) -> Check:
    """Returns the function that parses a column's texts. The column is not an array or a struct.

    The same texts are valid as in the CSV file of a table. For a timestamp, milliseconds since 1970
    are valid too.
    """
    check = text_reader(kind)
    if kind != Scalar("timestamp"):
        return check
    return lambda text, name: check(int(text) if _WHOLE.fullmatch(text) else text, name)


def text_of(value: Any, name: str) -> str:
    """Returns the text of a value, in the form that the function of `text_check` parses.

    Raises UsageError if the value is a list or a mapping. `name` is the value's name in the error.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        raise UsageError(
            f"{name} is {'a list' if isinstance(value, list) else 'a mapping'}, and this format "
            "has one plain value in each place"
        )
    return str(value)


def decoded_text(value: bytes) -> str:
    """Decodes the text of a record.

    Raises Rejected if the bytes are not UTF-8, or begin with a byte order mark.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise Rejected(Reason.NOT_UTF8, f"byte {error.start} of the value is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise Rejected(Reason.BYTE_ORDER_MARK, "the value begins with a byte order mark")
    return text


def check_plain(
    columns: Sequence[Column], fields: Iterable[str], what: str, *, by_schema: bool
) -> None:
    """Raises DeclarationError if an event cannot be read from fields that are plain texts.

    A column must not be an array or a struct. There must be a field with the column's name, or with
    one of its old names. The event must not be declared by a JSON Schema (`by_schema`). `fields`
    are the names of the fields. `what` is the name of the format in errors: `format csv`.
    """
    if by_schema:
        raise DeclarationError(
            f"{what} has texts in its fields, and a JSON Schema is about JSON's values",
            hint='declare the event by DDL: event="id string not null, happened_at timestamp"',
        )
    known = set(fields)
    for column in columns:
        if isinstance(column.type, Array | Struct):
            raise DeclarationError(
                f"column {column.name} is of type {column.type}, and {what} has one plain value in "
                "each place",
                hint="use a type without parts, and split the text in the function",
            )
        if not known & {column.name, *column.was}:
            raise DeclarationError(
                f"column {column.name} is not a field of {what}",
                hint=f"its fields are {', '.join(fields) or 'none'}",
            )
