"""Changes and keys in JSON, as Kafka Connect's converter writes them."""

from __future__ import annotations

import json
from typing import Any

from kappa.declare.formats.debezium.envelope import TakenApart
from kappa.declare.formats.debezium.written import of_connect
from kappa.declare.values.json_text import JsonFormat
from kappa.declare.values.reason import Reason, Rejected, kind_of

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


def _parts(found: dict[str, Any]) -> TakenApart:
    if found.keys() != _WRAPPED:
        return TakenApart(found)
    schema, payload = found["schema"], found["payload"]
    if not isinstance(payload, dict):
        raise Rejected(Reason.MALFORMED_CHANGE, f"the payload is {kind_of(payload)}, not an object")
    if schema is None:
        return TakenApart(payload)
    return TakenApart(payload, json.dumps(schema, default=str), lambda: of_connect(schema))
