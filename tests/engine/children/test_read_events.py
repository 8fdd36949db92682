"""Sample events from files: fields or envelopes by topic; a wrong line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.base.errors import UsageError
from kappa.testing import Event, read_events


def test_lines_are_events_by_topic_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "visits.ndjson").write_text('{"page": "/"}\n\n{"page": "/a"}\n', encoding="utf-8")
    line = '{"key": "k", "timestamp": "1970-01-01T00:00:07Z", "value": {"n": 1.0}}\n'
    tombstone = '{"key": "k", "value": null}\n'
    (tmp_path / "a.b.envelopes.ndjson").write_text(line + tombstone, encoding="utf-8")
    (tmp_path / "notes.txt").touch()

    found = read_events(tmp_path)

    assert found["visits"] == [{"page": "/"}, {"page": "/a"}]
    sent, deleted = found["a.b"]
    assert sent == Event(b'{"n": 1.0}', b"k", timestamp_ms=7000)
    assert isinstance(deleted, Event)
    assert (deleted.value, deleted.key) == (None, b"k")
    assert {*found} == {"visits", "a.b"}


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("visits.ndjson", "{", "is not JSON"),
        ("visits.ndjson", "[]", "is not an object"),
        ("visits.envelopes.ndjson", '{"key": "k"}', "is an envelope without a value"),
    ],
)
def test_a_wrong_line_is_named(file: str, line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(f'{{"value": 1}}\n{line}\n', encoding="utf-8")

    with pytest.raises(UsageError, match=f"{file} line 2 {why}"):
        read_events(tmp_path)
