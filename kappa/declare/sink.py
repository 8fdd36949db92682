"""Sinks: declarations of Kafka topics that contain the rows of a served table. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from msgspec import Struct

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.formats.avro_events import Avro, written_record
from kappa.declare.formats.avro_schema import parse_avro
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.registry_schemas import PinnedSchema, frame_message
from kappa.declare.formats.topic_formats import format_of
from kappa.declare.options import describe_value, error_prefix, option_text, wanted_part
from kappa.declare.topic import TOPIC_NAME
from kappa.declare.values.columns import Column, parse_type

# Returns the value of a record for a row that is given as JSON. Raises UsageError if the format
# cannot write the row.
RowWriter = Callable[[str], bytes]
# Names that are taken by convention: Kafka's (__consumer_offsets), schema registries' (_schemas),
# and the topics of Connect, Streams and MirrorMaker.
_OF_OTHERS = re.compile(
    r"_.*|connect-(configs|offsets|status)|kafkasql-(journal|snapshots)|registry-events"
    r"|.*-(changelog|repartition)|mm2-.*|.*\.internal"
)


class SinkBirth(Struct, frozen=True):
    """A sink in a build's birth certificate: its topic, table, columns and condition."""

    topic: str
    of: str
    partitions: int = 1
    columns: tuple[str, ...] | None = None
    where: str | None = None
    # As `SinkFormat` writes the format; None: JSON.
    format: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Sink:
    """A Kafka topic that always contains the rows that a table or maintained view serves.

    `name` is the name of the topic, and `of` is the name of the table or view. Each row becomes a
    record. The key of the record contains the table's keys as JSON, and the value contains the row.
    A record without a value deletes the key. The topic is compacted. Kappa creates the topic, with
    the given number of `partitions`. A change that readers see at once, such as a promote or an
    undo, is sent in a single transaction.

    `columns` names the columns to send in addition to the keys; the default is all columns. `where`
    is a condition for rows, in DuckDB's SQL. If a row no longer meets the condition, the row's key
    is deleted from the topic. `format` is the format of the values: JSON, `"csv"`, `Csv(...)` or
    `Avro(...)`. A sink has no influence on rows: if two versions differ only in sinks, nothing is
    replayed.

    Example:
        Sink("page-visits", of="page_visits")
        Sink("busy-pages", of="page_visits", columns=["visits"], where="visits > 100", partitions=3)
    """

    name: str
    of: str
    partitions: int
    columns: tuple[str, ...] | None
    where: str | None
    format: SinkFormat
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        *,
        of: str,
        partitions: int = 1,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        format: object = "json",  # noqa: A002  # its name in a topic
    ) -> None:
        source = Source.of_caller()
        if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
            raise DeclarationError(
                f"{source}: {describe_value(name)} is not a valid name of a Kafka topic, and a sink"
                " has the name of its topic",
                hint="use up to 249 letters, digits, dots, dashes and underscores",
            )
        if _OF_OTHERS.fullmatch(name):
            raise DeclarationError(
                f"{source}: topic {name} is Kafka's own or that of another program by its name, and"
                " a sink deletes the keys that its table lacks",
                hint="give the sink a topic of its own, whose name begins with a letter",
            )
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise DeclarationError(
                f"{source}: sink {name} has {option_text(partitions)} partitions",
                hint="partitions is a whole number from 1",
            )
        part = wanted_part(f"{source}: sink {name}", of, columns, where)
        with error_prefix(f"{source}: sink {name}"):
            form = SinkFormat.from_declared(format)
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "of", part.of)
        set_field(self, "partitions", partitions)
        set_field(self, "columns", part.columns)
        set_field(self, "where", part.where)
        set_field(self, "format", form)
        set_field(self, "source", source)

    @property
    def part_name(self) -> str:
        """Returns the name of the sink in a version's list of its parts: `sink NAME`."""
        return f"sink {self.name}"

    @property
    def outlet_birth(self) -> SinkBirth:
        """Returns the form of the sink that a build's birth certificate stores."""
        return SinkBirth(
            self.name, self.of, self.partitions, self.columns, self.where, self.format.text
        )


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """The format in which a sink writes rows. `text` is its form in a birth certificate.

    `text` is None for JSON.
    """

    text: str | None
    _format: RecordFormat = field(compare=False)

    @classmethod
    def from_declared(cls, given: object) -> Self:
        """Creates the format that a user declared.

        Raises DeclarationError if rows cannot be written in the declared format.
        """
        form = format_of(given)
        return cls(_stored_text(form), form)

    def ensure_fits(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raises DeclarationError if the format cannot encode columns, given as (name, type)."""
        if self.text is not None:
            self._format.check_event(_typed_columns(columns), by_schema=False)


def row_writer(text: str | None, columns: Sequence[tuple[str, str]]) -> RowWriter:
    """Returns a function that encodes a row of a table as the value of a record.

    The function receives the row as JSON. `text` is the sink's format in the birth certificate, and
    `columns` are the table's columns. Raises UsageError if this release of Kappa does not support
    the format.
    """
    match None if text is None else json.loads(text):
        case None:
            return str.encode
        case {"csv": {"fields": fields, "separator": separator}}:
            form = Csv(fields=fields, separator=separator)
            return partial(_csv_row, form, _typed_columns(columns))
        case {"json": {"id": number}}:
            return lambda row: frame_message(number, row.encode())
        case {"avro": {"schema": schema, "references": references, "id": number}}:
            known = parse_avro(schema, tuple(references))
            return lambda row: written_record(known, number, json.loads(row))
    raise UsageError(
        f"a newer Kappa has declared a sink of the format {text}", hint="run that version of Kappa"
    )


def _csv_row(form: Csv, columns: Sequence[Column], row: str) -> bytes:
    return form.encode_event(json.loads(row), columns)


def _stored_text(form: object) -> str | None:
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


def _typed_columns(columns: Sequence[tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(name, parse_type(kind)) for name, kind in columns)
