"""Laws of a topic's records: they are shown as text, exported, and imported byte for byte."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Topic
from kappa.base.errors import UsageError
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.records.lines.parquet import read_records
from kappa.replay.status.topics.records import (
    SeenRecord,
    decoder_of,
    export_lines,
    export_parquet,
    import_lines,
    import_parquet,
    seen_text,
)

EVENT = {"id": "é", "n": 3}
pytestmark = [pytest.mark.jvm, pytest.mark.law]
PARTITIONS = 3
RAW = decoder_of(None)
BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.sampled_from([b'{"id": "a", "x":  1.10}', b'{"a": 1}\n', b"[1]", b"null", b"\xe2\x80\xa8"]),
)
RECORDS = st.lists(
    st.builds(
        ProducedRecord,
        value=BYTES,
        key=BYTES,
        timestamp_ms=st.integers(1, 1_700_000_000_000),
        headers=st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3).map(tuple),
        partition=st.integers(0, PARTITIONS - 1),
    ),
    max_size=12,
)


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


names = count()


@contextmanager
def topics(log: Log) -> Iterator[tuple[str, str]]:
    """Makes two topics that keep their producers' timestamps."""
    name = f"files-{uuid.uuid4().hex[:8]}-{next(names)}"
    both = f"{name}-a", f"{name}-b"
    config = {"message.timestamp.type": "CreateTime"}
    for each in both:
        log.create(Topic(each, event="id string", partitions=PARTITIONS, config=config))
    try:
        yield both
    finally:
        for each in both:
            log.delete(each)


@pytest.fixture(scope="module")
def both(broker: object) -> Iterator[tuple[Log, str, str]]:
    log = Log(broker.bootstrap_servers)  # type: ignore[attr-defined]
    with topics(log) as (one, other):
        yield log, one, other


def contents_of(records: list[Record]) -> dict[int, list[tuple[Any, ...]]]:
    """Returns the content of the records by partition, in order."""
    found: dict[int, list[tuple[Any, ...]]] = {partition: [] for partition in range(PARTITIONS)}
    for each in records:
        found[each.partition].append((each.timestamp_ms, each.key, each.value, each.headers))
    return found


@given(records=RECORDS)
@examples(8)
def test_what_is_put_back_is_what_was_exported(
    both: tuple[Log, str, str], records: list[ProducedRecord]
) -> None:
    log, one, other = both
    begun, ended = log.end([one]), log.end([other])
    log.produce(records, one)
    exported = list(log.records([one], begun, log.end([one])))
    folder = Path(tempfile.mkdtemp())
    try:
        for form in ("jsonl", "parquet"):
            path, quiet = folder / f"records.{form}", {"partitions": True, "show": lambda _: None}
            with path.open("xb") as file:
                if form == "jsonl":
                    assert export_lines(exported, RAW, file) == len(records)
                else:
                    assert export_parquet(exported, RAW, file, decoded=True) == len(records)
            if form == "jsonl":
                with path.open("rb") as lines:
                    import_lines(log, other, lines, **quiet)
            else:
                import_parquet(log, other, path, **quiet)
            now = log.end([other])
            back = list(log.records([other], ended, now))
            assert contents_of(back) == contents_of(exported)
            ended = now
    finally:
        shutil.rmtree(folder)


def test_lines_have_offsets_and_events_and_the_reason_of_a_reject(tmp_path: Path) -> None:
    topic = Topic("visits", key="id", event="id string not null, at timestamp, n int")
    good = Record("visits", 1, 7, 9, b"a", b'{"id": "a", "at": "2026-01-01T00:00:00Z"}', ())
    bad = Record("visits", 1, 8, 9, b"a", b"{", (("trace", b"\xff"),))
    path, columns = tmp_path / "records.jsonl", tmp_path / "records.parquet"
    for each in (path, columns):
        with each.open("xb") as file:
            if each is path:
                export_lines([good, bad], decoder_of(topic), file)
            else:
                export_parquet([good, bad], decoder_of(topic), file, decoded=True)

    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["offset"], first["partition"], first["key"]) == (7, 1, "a")
    assert first["event"] == {"id": "a", "at": "2026-01-01T00:00:00Z", "n": None}
    assert second["reject"].startswith("malformed_json: ")
    assert second["base64"] == ["headers.trace"]
    assert [each.value for each in read_records(columns)] == [good.value, bad.value]


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_records(path))
    path.write_bytes(b"no parquet")
    with pytest.raises(UsageError, match="is not a Parquet file"):
        list(read_records(path))
    with path.open("wb") as file:
        record = Record("visits", 1, 7, 9, b"a", b"x" * 9, ())
        export_parquet([record], RAW, file, decoded=False)
    # As an export leaves it that was killed.
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match="is not a Parquet file"):
        list(read_records(path))
