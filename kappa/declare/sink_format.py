"""The format of a sink's records: those of topics in which rows can be written. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from kappa.base.errors import DeclarationError, UsageError
from kappa.declare.formats.avro_events import Avro, written_record
from kappa.declare.formats.avro_schema import parsed
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.named import format_of
from kappa.declare.formats.pinned import PinnedSchema
from kappa.declare.formats.schema_source import framed
from kappa.declare.values.columns import Column, parse_type

# Returns the value of a record for a row that is given as JSON. Raises UsageError if there is none.
RowWriter = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """The format of a sink, and its text for a birth certificate: none for JSON."""

    text: str | None
    _format: RecordFormat = field(compare=False)

    @classmethod
    def of(cls, given: object) -> Self:
        """Raises DeclarationError if it is no format, or rows cannot be written in it."""
        form = format_of(given)
        return cls(_stored(form), form)

    def ensure_fits(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raises DeclarationError if a table's columns, as (name, type), cannot be written so."""
        if self.text is not None:
            self._format.check_event(_columns(columns), by_schema=False)


def row_writer(text: str | None, columns: Sequence[tuple[str, str]]) -> RowWriter:
    """Returns what writes rows of a table in a sink's format, as its birth certificate has it."""
    match None if text is None else json.loads(text):
        case None:
            return str.encode
        case {"csv": {"fields": fields, "separator": separator}}:
            form = Csv(fields=fields, separator=separator)
            return partial(_csv_row, form, _columns(columns))
        case {"json": {"id": number}}:
            return lambda row: framed(number, row.encode())
        case {"avro": {"schema": schema, "references": references, "id": number}}:
            known = parsed(schema, tuple(references))
            return lambda row: written_record(known, number, json.loads(row))
    raise UsageError(
        f"a newer Kappa has declared a sink of the format {text}", hint="run that version of Kappa"
    )


def _csv_row(form: Csv, columns: Sequence[Column], row: str) -> bytes:
    return form.encode(json.loads(row), columns)


def _stored(form: object) -> str | None:
    stored: Mapping[str, Any]
    match form:
        case Json(framed=False):
            return None
        case Json(framed=True, pin=None) | Avro(framed=True, pin=None):
            raise DeclarationError(
                "there is no id of a schema that records could be framed with",
                hint='declare the subject: Subject("orders-value"); or leave framed out',
            )
        case Json(pin=PinnedSchema(id=pinned)):
            stored = {"json": {"id": pinned}}
        case Csv():
            stored = {"csv": {"fields": form.fields, "separator": form.separator}}
        case Avro():
            number = None if form.pin is None or not form.framed else form.pin.id
            stored = {
                "avro": {"schema": form.text, "references": form.references, "id": number},
            }
        case _:
            raise DeclarationError(
                f"rows are not written as {type(form).__name__}",
                hint='a sink\'s format is "json", Json(Subject(...)), "csv", Csv(...) or Avro(...)',
            )
    return json.dumps(stored, sort_keys=True)


def _columns(columns: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(name, parse_type(kind)) for name, kind in columns)
