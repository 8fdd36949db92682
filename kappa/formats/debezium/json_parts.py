"""Changes and keys in JSON, as Kafka Connect's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kappa.formats.debezium.envelope import TakenApart
from kappa.formats.debezium.facts import key_text
from kappa.formats.debezium.written import of_connect
from kappa.values.json_text import JsonFormat
from kappa.values.reason import Reason, Rejected, kind_of

_WRAPPED = {"schema", "payload"}


class JsonParts:
    """A reader that takes values and keys of JSON apart."""

    def __init__(self, *, exact: bool) -> None:
        """`exact` keeps every digit of a number."""
        self._fields = JsonFormat(exact=exact).fields

    def value(self, value: bytes) -> TakenApart:
        """Takes a value apart. Raises Rejected if it is no object."""
        return _parts(self._fields(value))

    def key(self, key: bytes) -> TakenApart:
        """Takes a key apart. Raises Rejected if it is no object."""
        try:
            return _parts(self._fields(key))
        except Rejected as error:
            raise Rejected(
                Reason.BAD_KEY, f"the key is no object of a row's key: {error.detail}"
            ) from None


def texts_of_key(key: bytes) -> Iterator[str]:
    """Yields how a key of a row may stand in a table: as all of it, and as its only column."""
    try:
        fields = _parts(JsonFormat(exact=False).fields(key)).fields
    except Rejected:
        return
    yield key_text(fields)
    if len(fields) == 1:
        yield from map(str, fields.values())


def _parts(found: dict[str, Any]) -> TakenApart:
    if found.keys() != _WRAPPED:
        return TakenApart(found)
    schema, payload = found["schema"], found["payload"]
    if not isinstance(payload, dict):
        raise Rejected(Reason.MALFORMED_CHANGE, f"the payload is {kind_of(payload)}, not an object")
    if schema is None:
        return TakenApart(payload)
    return TakenApart(payload, json.dumps(schema, default=str), lambda: of_connect(schema))
