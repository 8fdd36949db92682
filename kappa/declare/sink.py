"""A sink, as a pipeline's file declares it: a served table in a Kafka topic. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.declare.options import wanted_part
from kappa.declare.sink_format import SinkFormat
from kappa.declare.topic import TOPIC_NAME

# By convention: Kafka's (__consumer_offsets), schema registries' (_schemas), those of Connect,
# Streams and MirrorMaker.
_OF_OTHERS = re.compile(
    r"_.*|connect-(configs|offsets|status)|kafkasql-(journal|snapshots)|registry-events"
    r"|.*-(changelog|repartition)|mm2-.*|.*\.internal"
)


class SinkBirth(Struct, frozen=True):
    """A sink as a birth certificate has it: its topic, and what of which table goes there."""

    topic: str
    of: str
    partitions: int = 1
    columns: tuple[str, ...] | None = None
    where: str | None = None
    # As sink_format.py writes it; none: JSON.
    format: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Sink:
    """A Kafka topic that is always what a table or maintained view serves.

    `name` is the topic's, `of` the table's or view's.

    Each row is a record: its key has the table's keys as JSON, its value the row. A record without
    a value deletes its key. The topic is compacted, and Kappa makes it with so many `partitions`. A
    change that readers see at once is one transaction, a promote or an undo too.

    `columns` names the columns that go out, beside the keys; all do otherwise. `where` is a
    condition for rows, in DuckDB's SQL: a row that ceases to meet it is deleted. Values are written
    in a `format` as topics have it: JSON, `"csv"`, `Csv(...)` or `Avro(...)`.

    A sink decides no rows: a version that differs in sinks alone replays nothing.

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
                f"{source}: {described(name)} is no name of a Kafka topic, and a sink has its"
                " topic's",
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
                f"{source}: sink {name} has {shown(partitions)} partitions",
                hint="partitions is a whole number from 1",
            )
        part = wanted_part(f"{source}: sink {name}", of, columns, where)
        try:
            form = SinkFormat.of(format)
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: sink {name}: {error.message}", hint=error.hint
            ) from None
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "of", part.of)
        set_field(self, "partitions", partitions)
        set_field(self, "columns", part.columns)
        set_field(self, "where", part.where)
        set_field(self, "format", form)
        set_field(self, "source", source)

    @property
    def part(self) -> str:
        """Returns its name among the parts of a version."""
        return f"sink {self.name}"

    @property
    def birth(self) -> SinkBirth:
        """Returns it as a birth certificate has it."""
        return SinkBirth(
            self.name, self.of, self.partitions, self.columns, self.where, self.format.text
        )
