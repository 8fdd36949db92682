"""Reads from Kafka: with exact bounds, and with settings that nobody can override."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kappa.base.errors import Damaged
from kappa.engine.read.source import (
    KafkaAccess,
    LogSource,
    _noted,
    _options,
    batch_bounds,
)
from kappa.kafka.java_options import java_options
from kappa.kafka.reader import Record
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

START = Offsets({"t": {0: 3, 1: 0}})


def planned(checkpoint: Path, batch: int, ends: str, version: str = "v1") -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'{version}\n{{"batchWatermarkMs":0}}\n{ends}')


def test_a_batch_goes_from_the_end_of_the_one_before_to_its_own(tmp_path: Path) -> None:
    planned(tmp_path, 0, '{"t":{"0":5,"1":1}}')
    planned(tmp_path, 1, '{"t":{"0":9,"1":1,"2":4}}')

    assert batch_bounds(tmp_path, 0, START) == (START, Offsets({"t": {0: 5, 1: 1}}))
    assert batch_bounds(tmp_path, 1, START) == (
        Offsets({"t": {0: 5, 1: 1}}),
        Offsets({"t": {0: 9, 1: 1, 2: 4}}),
    )


def test_a_checkpoint_of_another_form_stops_the_job(tmp_path: Path) -> None:
    planned(tmp_path, 0, '{"t":{"0":5}}', version="v2")

    with pytest.raises(Damaged, match="version v2"):
        batch_bounds(tmp_path, 0, START)
    with pytest.raises(Damaged, match="cannot be read"):
        batch_bounds(tmp_path, 7, START)


def test_a_timestamp_beyond_64_bits_of_microseconds_is_the_last_one() -> None:
    from kappa.records.decode.raw_records import raw_table

    sent = [2**63 - 1, -(2**63), 5]
    records = (Record("t", 0, place, ms, None, b"", ()) for place, ms in enumerate(sent))

    found = raw_table(_noted(records, {})).column("timestamp").cast("int64").to_pylist()
    assert found == [9_223_372_036_854_775_000, -9_223_372_036_854_775_000, 5_000]


def test_what_makes_a_read_exact_cannot_be_set_otherwise() -> None:
    options = _options(
        KafkaAccess(
            "real:9092",
            {
                "isolation.level": "read_uncommitted",
                "bootstrap.servers": "other:1",
                "max.poll.records": "5",
            },
        )
    )

    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.bootstrap.servers"] == "real:9092"
    assert options["kafka.max.poll.records"] == "5"
    assert options["failOnDataLoss"] == "true"


def test_a_large_slice_is_read_by_exactly_the_partitions_that_it_has_offsets_of() -> None:
    piece = Slice(
        1,
        0,
        Offsets({"t": {0: 3, 1: 7}, "u": {0: 5}}),
        Offsets({"t": {0: 9, 1: 7, 2: 4}, "u": {0: 5}}),
    )

    source = LogSource(
        KafkaAccess("real:9092", {}),
        SimpleNamespace(reader=lambda: None, last_before=lambda _end: {}),
    )  # type: ignore[arg-type]  # nothing is read here

    # Partition 1 does not move; partition 2 was not there at the start, so it is read from 0.
    assert [(each.partition, each.start, each.end) for each in source.ranges(piece, "t")] == [
        (0, 3, 9),
        (2, 0, 4),
    ]
    assert source.ranges(piece, "u") == []


def test_librdkafkas_names_are_javas() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\',
        "ssl.ca.location": "/ca.pem",
    }

    assert java_options(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        r' username="me" password="a\"b\\";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }
