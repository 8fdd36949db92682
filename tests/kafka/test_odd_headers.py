"""A header whose name is not UTF-8 does no harm: both readers read everything else.

They read the record, its other headers, and the records that follow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from operator import methodcaller

import pytest
from confluent_kafka import Consumer, TopicPartition, cimpl

from kappa.kafka.bulk_reader import BulkReader
from kappa.kafka.reader import LogReader
from kappa.records.redrive import named_original
from kappa.state.offsets import Offsets

TOPIC = "odd"
REDRIVE = (b"kappa-redrive", b"odd:0:0@1356998400000")
ODD = (b"\xffkappa-redrive", b"odd:0:1@1356998400000")


class MockCluster:
    """A broker within librdkafka, with its own producer.

    confluent_kafka's producer accepts no such header name.
    """

    def __init__(self) -> None:
        self._rd = ctypes.CDLL(cimpl.__file__)
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        for name, answer, arguments in (
            ("conf_new", pointer, ()),
            ("conf_set", ctypes.c_int, (pointer, text, text, text, size)),
            ("new", pointer, (ctypes.c_int, pointer, text, size)),
            ("handle_mock_cluster", pointer, (pointer,)),
            ("mock_cluster_bootstraps", text, (pointer,)),
            ("headers_new", pointer, (size,)),
            ("header_add", ctypes.c_int, (pointer, text, ctypes.c_ssize_t, text, ctypes.c_ssize_t)),
            ("flush", ctypes.c_int, (pointer, ctypes.c_int)),
            ("destroy", None, (pointer,)),
        ):
            function = getattr(self._rd, f"rd_kafka_{name}")
            function.restype, function.argtypes = answer, arguments
        conf = self._rd.rd_kafka_conf_new()
        error = ctypes.create_string_buffer(512)
        for name, value in ((b"test.mock.num.brokers", b"1"), (b"log_level", b"0")):
            assert self._rd.rd_kafka_conf_set(conf, name, value, error, 512) == 0, error.value
        self._handle = self._rd.rd_kafka_new(0, conf, error, 512)
        cluster = self._rd.rd_kafka_handle_mock_cluster(self._handle)
        self.bootstrap_servers = self._rd.rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def produce(self, value: bytes, *headers: tuple[bytes, bytes | None]) -> None:
        """Produces one record to partition 0. The numbers are values of `rd_kafka_vtype_t`."""
        added = self._rd.rd_kafka_headers_new(len(headers))
        for name, content in headers:
            size = 0 if content is None else len(content)
            self._rd.rd_kafka_header_add(added, name, len(name), content, size)
        vtype = ctypes.c_int
        failed = self._rd.rd_kafka_producev(
            ctypes.c_void_p(self._handle),
            *(vtype(1), ctypes.c_char_p(TOPIC.encode())),
            *(vtype(3), ctypes.c_int(0)),
            *(vtype(4), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
            *(vtype(7), ctypes.c_int(2)),
            *(vtype(10), ctypes.c_void_p(added)),
            vtype(0),
        )
        assert failed == 0
        assert self._rd.rd_kafka_flush(self._handle, 10_000) == 0

    def close(self) -> None:
        self._rd.rd_kafka_destroy(self._handle)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    cluster = MockCluster()
    cluster.produce(b"plain")
    cluster.produce(b"first", ODD, (b"null", None), REDRIVE)
    cluster.produce(b"between", (b"fine", b"x"))
    cluster.produce(b"second", (b"\xc3", b"y"))
    cluster.produce(b"last", (b"fine", b"z"))
    yield cluster.bootstrap_servers
    cluster.close()


@pytest.fixture
def reader(servers: str) -> Iterator[LogReader]:
    with LogReader({"bootstrap.servers": servers, "log_level": 0}, _raise) as opened:
        yield opened


def _raise(error: Exception, _what: str) -> None:
    raise error


def small(reader: LogReader, start: int, end: int) -> list[tuple[bytes | None, list]]:
    read = reader.read(Offsets({TOPIC: {0: start}}), Offsets({TOPIC: {0: end}}))
    return [(record.value, list(record.headers)) for record in read]


def large(servers: str, start: int, end: int) -> list[tuple[bytes | None, list]]:
    options = {"bootstrap.servers": servers, "log_level": 0}
    with BulkReader(options, _raise, TOPIC, 0, start) as opened:
        return [
            (value, [(each["key"], each["value"]) for each in headers or ()])
            for columns in opened.read(end)
            for value, headers in zip(
                columns.values.to_pylist(), columns.headers.to_pylist(), strict=True
            )
        ]


EXPECTED = [
    (b"plain", []),
    (b"first", [("\ufffdkappa-redrive", ODD[1]), ("null", None), ("kappa-redrive", REDRIVE[1])]),
    (b"between", [("fine", b"x")]),
    (b"second", [("\ufffd", b"y")]),
    (b"last", [("fine", b"z")]),
]


def test_small_and_large_slices_read_an_odd_header_alike(servers, reader):
    assert small(reader, 0, 5) == EXPECTED
    assert large(servers, 0, 5) == EXPECTED


@pytest.mark.parametrize("cut", range(1, 5))
def test_an_odd_header_is_read_wherever_a_range_ends(servers, reader, cut):
    assert small(reader, 0, cut) + small(reader, cut, 5) == EXPECTED
    assert large(servers, 0, cut) + large(servers, cut, 5) == EXPECTED


def test_an_odd_header_is_no_redrive_and_hides_none_beside_it(reader):
    headers = dict(small(reader, 0, 5))

    original = named_original(headers[b"first"])
    assert original.position.offset == 0
    assert named_original(headers[b"second"]) is None


def test_the_binding_still_cannot_read_such_a_name(servers):
    """If this test fails, the workaround in kappa/kafka/headers.py is not needed any more."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "odd", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 1)])
    try:
        message = consumer.poll(20)
        with pytest.raises(SystemError) as caught:
            methodcaller("headers")(message)
    finally:
        consumer.close()

    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
