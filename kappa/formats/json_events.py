"""Events as JSON objects: the format of a topic that declares no other. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.values.columns import Column
from kappa.values.json_text import JsonFormat
from kappa.values.value import Check, check_of, holds_decimal


@dataclass(frozen=True, slots=True)
class Json:
    """The format of one JSON object in UTF-8 a record."""

    def lines(self) -> Iterator[str]:
        """Yields nothing: versions that are older than formats are of this one."""
        return iter(())

    def columns(self) -> None:
        """Returns None: the topic declares its events."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Accepts each declaration: it was made for JSON."""

    def reader(self, columns: Sequence[Column]) -> JsonReader:
        """Returns a reader, which keeps every digit if a column needs them."""
        return JsonReader(
            JsonFormat(exact=any(holds_decimal(column.type) for column in columns)).fields
        )

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns the event as JSON text."""
        del columns
        return json.dumps(fields, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class JsonReader:
    """The reader of JSON objects."""

    fields: Callable[[bytes], dict[str, Any]]

    def check(self, column: Column) -> Check:
        """Returns the check of JSON's values."""
        return check_of(column.type)
