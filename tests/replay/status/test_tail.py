"""The line of a record for people: its event, where the value itself is no text."""

from __future__ import annotations

from typing import Any

import pytest

from kappa.kafka.reader import Record
from kappa.replay.status.topics.tail import SeenRecord, seen_text

EVENT = {"id": "é", "n": 3}


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
        (2**63 - 1, "292278994-08-17T07:12:55.807Z"),
        (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        (-62_198_755_200_001, "-0002-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_that_python_lacks_is_shown_as_it_is(ms: int, shown: str) -> None:
    seen = SeenRecord(Record("visits", 0, 7, ms, None, b"a", ()))
    assert seen_text(seen) == f"0@7  {shown}  null  a\n"


@pytest.mark.parametrize(
    ("value", "event", "shown"),
    [
        (b"\x04\xc3\xa9\x06", EVENT, '{"id": "é", "n": 3}'),
        (b"\xff\xfe", EVENT, '{"id": "é", "n": 3}'),
        (b'{"n":3,"id":"a"}', EVENT, '{"n":3,"id":"a"}'),
        ('"é\n1",3'.encode(), EVENT, '"é\\n1",3'),
        (b"\x04", None, "\\x04"),
        (None, None, "null"),
    ],
)
def test_a_value_that_is_no_text_is_shown_as_its_event(
    value: bytes | None, event: dict[str, Any] | None, shown: str
) -> None:
    seen = SeenRecord(Record("visits", 0, 7, 0, b"k", value, ()), event)
    assert seen_text(seen) == f"0@7  1970-01-01T00:00:00.000Z  k  {shown}\n"
