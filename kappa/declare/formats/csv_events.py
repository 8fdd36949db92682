"""Events as lines of separated values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.formats.text_values import check_plain, decoded_text, text_check, text_of
from kappa.declare.options import describe_value, listed_texts
from kappa.declare.values.columns import Column
from kappa.declare.values.csv_text import CsvError, text_rows
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check

_TO_QUOTE = frozenset('"\r\n')


@dataclass(frozen=True, slots=True, init=False)
class Csv:
    """The format of records that each contain one line of separated values (RFC 4180).

    There is no header. `fields` are the names of the values, in their order in a line; the default
    is the names of the event's columns. A field that is not a column is ignored. `separator` is one
    character.

    An empty value is null, and `""` is the empty text. A line must contain exactly the declared
    values. Only values at the end of a line may be missing, for example in older events, and only
    if their columns have a default.

    Example:
        Topic(
            "sales",
            event="id string not null, amount decimal(10,2), currency string default 'EUR'",
            format=Csv(fields=["id", "till", "amount", "currency"], separator=";"),
        )
    """

    fields: tuple[str, ...] | None
    separator: str
    source: Source = field(compare=False)

    def __init__(self, *, fields: Sequence[str] | None = None, separator: str = ",") -> None:
        source = Source.of_caller()
        if not isinstance(separator, str) or len(separator) != 1 or separator in _TO_QUOTE:
            raise DeclarationError(
                f"{source}: format csv has the separator {describe_value(separator)}",
                hint='a separator is one character, and no quote: separator=";"',
            )
        listed = None
        if fields is not None:
            listed = listed_texts(
                f"{source}: format csv", "fields", fields, '["id", "happened_at"]'
            )
            twice = [name for number, name in enumerate(listed) if name in listed[:number]]
            if twice or not listed or isinstance(fields, str):
                what = (
                    f"the field {twice[0]} twice"
                    if twice
                    else f"{describe_value(fields)} for fields"
                )
                raise DeclarationError(
                    f"{source}: format csv has {what}",
                    hint="name each value once, in the order of a line:"
                    ' fields=["id", "happened_at"]',
                )
        set_field = object.__setattr__
        set_field(self, "fields", listed)
        set_field(self, "separator", separator)
        set_field(self, "source", source)

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        They are the name of the format with its separator, and the declared fields.
        """
        yield f"format csv separated by {self.separator!r}"
        if self.fields is not None:
            yield f"fields {', '.join(map(repr, self.fields))}"

    def declared_event(self) -> None:
        """Returns None, because the topic itself declares the event."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if the format cannot represent an event's columns.

        A column must not be an array or a struct, and must be one of the fields of a line.
        """
        check_plain(columns, self._field_names(columns), "format csv", by_schema=by_schema)

    def event_reader(self, columns: Sequence[Column]) -> CsvReader:
        """Returns a reader of lines for these columns."""
        optional = {
            name
            for column in columns
            if column.default is not None
            for name in (column.name, *column.was)
        }
        names = self._field_names(columns)
        needed = [number for number, name in enumerate(names, start=1) if name not in optional]
        return CsvReader(names, self.separator, max(needed, default=1))

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes an event as a line. A missing field becomes an empty value.

        Raises UsageError if no line can represent these values.
        """
        names = self._field_names(columns)
        # An event of a test may have a field's old name.
        spelled = {
            name: spellings
            for column in columns
            for spellings in [(column.name, *column.was)]
            for name in spellings
        }
        found = [
            next((fields[each] for each in spelled.get(name, (name,)) if each in fields), None)
            for name in names
        ]
        line = self.separator.join(map(self._written_value, found, names))
        if not line:
            raise UsageError(
                f"{names[0]} is null, and a line of CSV with that value alone is not a record",
                hint="give the format a second field, or leave such rows out",
            )
        return line.encode()

    def _written_value(self, value: Any, name: str) -> str:
        if value is None:
            return ""
        text = text_of(value, name)
        is_plain = not _TO_QUOTE & {*text} and self.separator not in text
        # The first value of a line may not look like a byte order mark.
        if text and is_plain and not text.startswith("\ufeff"):
            return text
        doubled = text.replace('"', '""')
        return f'"{doubled}"'

    def _field_names(self, columns: Sequence[Column]) -> tuple[str, ...]:
        return self.fields or tuple(column.name for column in columns)


@dataclass(frozen=True, slots=True)
class CsvReader:
    """A reader of lines of separated values, which are the fields `names`.

    A line must contain at least the first `least` fields.
    """

    names: tuple[str, ...]
    separator: str
    least: int

    def fields(self, value: bytes) -> dict[str, Any]:
        """Returns the texts of a line's values, by field. An empty value is None.

        Raises Rejected if the bytes are not one line with the declared number of values.
        """
        text = decoded_text(value)
        try:
            rows = [row for _, row in text_rows(text, self.separator)]
        except CsvError as error:
            raise Rejected(Reason.MALFORMED_CSV, str(error)) from None
        if len(rows) != 1:
            raise Rejected(
                Reason.MALFORMED_CSV, f"the value has {len(rows) or 'no'} lines, not exactly one"
            )
        row = rows[0]
        if not self.least <= len(row) <= len(self.names):
            raise Rejected(
                Reason.MALFORMED_CSV,
                f"the line has {len(row)} value{'' if len(row) == 1 else 's'}, "
                f"and {len(self.names)} {'is' if len(self.names) == 1 else 'are'} declared",
            )
        return dict(zip(self.names, row, strict=False))

    def column_check(self, column: Column) -> Check:
        """Returns the function that converts a column's texts to the values in the row."""
        return text_check(column.type)
