"""Debezium's changes, as a topic declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.described import shown
from kappa.declare.formats.debezium.avro_parts import AvroParts
from kappa.declare.formats.debezium.change import SourceChange
from kappa.declare.formats.debezium.change_sample import written_change, written_key
from kappa.declare.formats.debezium.envelope import EnvelopeReader, TakenApart
from kappa.declare.formats.debezium.facts import FACTS, OPERATION, check_facts, facts_of
from kappa.declare.formats.debezium.json_parts import JsonParts
from kappa.declare.formats.debezium.row_values import UNITS, RowValues
from kappa.declare.values.columns import Column
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check, holds_decimal

_ENCODINGS = ("json", "avro")


@dataclass(frozen=True, slots=True, init=False)
class Debezium:
    """The format of one change of a row a record, as Debezium writes them from a database's log.

    The event's columns are the row's: after the change, and of a deleted row as it was before. A
    column named `change_...` tells of the change itself: `change_op` (c, u, d, r of a snapshot, or
    t of a truncated table), `change_id` (its identity), `change_at`, `change_lsn`, `change_tx`,
    `change_snapshot`, `change_key` (a key of several columns, as one text) and `change_before`.
    `facts` gives other columns, or other names for these.

    `encoding` is "json", or "avro" by the schemas of a registry, of which nothing need be pinned.

    Records without a schema do not say what a whole number or a text means. `times` is the unit of
    such timestamps ("millis", "micros" or "nanos"), and `decimals="text"` says that decimals are
    digits (`decimal.handling.mode=string`). What is not said is refused.

    After a crash Debezium repeats changes. So a retained topic needs an `identity`; `exactly_once`
    says that Kafka Connect writes each change once, and it needs none.

    Example:
        Topic(
            "shop.app.orders",
            event="id bigint not null, amount decimal(10,2), at timestamp,"
            " change_op string not null, change_id string not null",
            format=Debezium(times="micros", decimals="text"),
            key="id",
            identity="change_id",
            identity_horizon="1 day",
        )
    """

    encoding: str
    times: str | None
    decimals: str | None
    facts: tuple[tuple[str, str], ...]
    exactly_once: bool
    source: Source = field(compare=False)

    def __init__(
        self,
        encoding: str = "json",
        *,
        times: str | None = None,
        decimals: str | None = None,
        facts: Mapping[str, str] | None = None,
        exactly_once: bool = False,
    ) -> None:
        source = Source.of_caller()
        for option, given, known in (
            ("encoding", encoding, _ENCODINGS),
            ("times", times, (None, *UNITS)),
            ("decimals", decimals, (None, "text")),
            ("exactly_once", exactly_once, (False, True)),
        ):
            if not any(given is each or given == each for each in known):
                raise DeclarationError(
                    f"{source}: format debezium has {option}={shown(given)}",
                    hint=f"it is {' or '.join(map(shown, known))}",
                )
        set_field = object.__setattr__
        try:
            set_field(self, "facts", tuple(sorted(facts_of(facts).items())))
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: format debezium: {error.message}", hint=error.hint
            ) from None
        set_field(self, "encoding", encoding)
        set_field(self, "times", times)
        set_field(self, "decimals", decimals)
        set_field(self, "exactly_once", exactly_once)
        set_field(self, "source", source)

    @property
    def tells_operation(self) -> frozenset[str]:
        """Returns the columns that tell what a change does, one of which a function needs."""
        return frozenset(name for name, path in self.facts if path == OPERATION)

    def lines(self) -> Iterator[str]:
        """Yields its name, and what else is declared."""
        yield f"format debezium-{self.encoding}"
        if self.times is not None:
            yield f"times are {self.times}"
        if self.decimals is not None:
            yield "decimals are digits"
        for name, path in self.facts:
            if FACTS.get(name) != path:
                yield f"fact {name} is {path}"

    def event(self) -> None:
        """Returns None: the topic declares the columns of the rows."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Refuses a JSON Schema, and facts of other types than they have."""
        if by_schema:
            raise DeclarationError(
                "a JSON Schema is about JSON's values, and a row has a database's",
                hint='declare its columns: event="id bigint not null, amount decimal(10,2)"',
            )
        check_facts(columns, dict(self.facts))

    def reader(self, columns: Sequence[Column]) -> Changes:
        """Returns a reader of changes."""
        return Changes(self, columns)

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns a change of a row with these fields; `change_op` says which, else it is "c".

        Raises UsageError if it cannot be written.
        """
        del columns
        if self.encoding != "json":
            raise UsageError(
                "a change in Avro is not written by hand",
                hint="give its bytes; or test the same columns with format='debezium-json'",
            )
        return written_change(fields, dict(self.facts))

    def encoded_key(self, name: str, value: Any) -> bytes:
        """Returns the Kafka key of a row whose key column has this value."""
        return written_key(name, value, dict(self.facts))


class PartsReader(Protocol):
    """A reader that takes values and keys apart, in one encoding."""

    def value(self, value: bytes) -> TakenApart: ...  # noqa: D102  # as in JsonParts

    def key(self, key: bytes) -> TakenApart: ...  # noqa: D102  # as in JsonParts


class Changes:
    """The reader of a topic's changes."""

    def __init__(self, form: Debezium, columns: Sequence[Column]) -> None:
        self._parts: PartsReader = (
            JsonParts(exact=any(holds_decimal(column.type) for column in columns))
            if form.encoding == "json"
            else AvroParts()
        )
        self._envelope = EnvelopeReader(
            columns, dict(form.facts), RowValues(times=form.times, decimals=form.decimals)
        )

    def change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Reads one change. Raises Rejected if the bytes are none."""
        return self._envelope.change(lambda: self._key(key), self._parts.value(value))

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the fields of one change without its key."""
        return self.change(None, value).fields

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the row's value of the column that the Kafka key is."""
        return self._envelope.key_value(self._parts.key(key), column)

    def check(self, column: Column) -> Check:
        """Returns no check: the values of a row are checked by how each was written."""
        del column
        return _as_it_is

    def _key(self, key: bytes | None) -> TakenApart:
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        return self._parts.key(key)


def _as_it_is(found: Any, name: str) -> Any:
    del name
    return found
