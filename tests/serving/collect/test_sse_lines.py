"""Laws of server-sent events from a source: the same events, however the bytes are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kappa.serving.collect.lines import Invalid
from kappa.serving.collect.pulled.kinds import SseLines, events_of_document

STREAM = (
    b"\xef\xbb\xbf: comment\r\nretry: 250\r\nid: a\r\ndata: one\r\n\r\n"
    b"data:two\ndata: lines\nevent: x\nid: \xc3\xb6\n\n"
    b"id: only\n\ndata\r\rid: no\x01good\ndata: 5\n\n"
    b"id: late\ndata: " + b"x" * 500 + b"\n\n"
    b"retry: soon\nunknown: 1\ndata: \xf0\x9f\x8e\x88\n\nid: never\ndata: cut sh"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=60))
def test_a_stream_gives_the_same_events_however_it_is_cut(cuts: list[int]) -> None:
    lines = SseLines("", 100)
    ends = sorted({*cuts, len(STREAM)})

    found = [
        each
        for start, end in zip([0, *ends], ends, strict=False)
        for each in lines.feed(STREAM[start:end])
    ]

    too_large = Invalid("too_large", "it has more than 100 bytes")
    assert found == [b"one", b"two\nlines", b"", b"5", too_large, "🎈".encode()]
    assert (lines.last_id, lines.retry_seconds) == ("late", 0.25)


@given(st.binary())
def test_no_bytes_break_a_stream(chunk: bytes) -> None:
    lines = SseLines("", 10)
    lines.feed(chunk)
    # What was begun ends here.
    lines.feed(b"\n\n")
    assert lines.feed(b"data: x\n\n") == [b"x"]


def test_an_endless_line_takes_no_memory() -> None:
    lines = SseLines("", 1_000)
    for _ in range(100):
        assert lines.feed(b"data: " + b"y" * 65_000) == []
    assert len(lines._line) < 2_000
    (found,) = lines.feed(b"\n\n")
    assert isinstance(found, Invalid)


def test_a_document_gives_an_arrays_elements_or_lines() -> None:
    json, lines = "application/json; charset=utf-8", "application/x-ndjson"

    assert events_of_document(b' [{"a": [1, 2]}, "x", 3] ', json) == [
        b'{"a": [1, 2]}',
        b'"x"',
        b"3",
    ]
    assert events_of_document(b"[]", json) == []
    assert events_of_document(b"", json) == events_of_document(b"\n \n", lines) == []
    assert events_of_document(b'{"a":\n 1}', json) == [b'{"a":\n 1}']
    assert events_of_document(b'{"a": 1}\r\n\n{"b"\n', lines) == [b'{"a": 1}', b'{"b"']
    assert events_of_document(b"[1]", "text/plain") == [b"1"]
    (found,) = events_of_document(b'[{"a": 1}, {"b"', json)
    assert isinstance(found, Invalid)
    assert found.reason == "malformed_json"
