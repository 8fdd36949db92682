"""The log as the source of slices: the records of exact ranges, and the stream of the tail.

The library librdkafka reads the records. For a large slice, it runs in the Python worker that
decodes the records. Spark's own source would first turn each record into a row of the JVM, which
costs more than all other work on the record (docs/performance.md). The start and end of a slice are
never computed from its rows: compaction and transactions leave gaps, and offsets without a record
count too. This page explains the options of Spark's source:
https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import Damaged, KappaError, unreadable
from kappa.kafka.client import Log
from kappa.kafka.java_options import (
    ALLOWED_URLS,
    java_options,
    named_secrets,
    secret_variables,
    token_url,
)
from kappa.kafka.log_end import witness_of
from kappa.kafka.reader import Record
from kappa.records.decode.raw_records import RAW_SCHEMA, RawRange, RawRecord, raw_table
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.witness import Witness, Witnesses

# The greatest milliseconds that 64 bits hold as microseconds: a producer's later timestamp counts
# as this limit.
_MOST_MS = 9_223_372_036_854_775

# These options make the stream's bounds exact; the user's settings may not change them.
_EXACT = {"kafka.isolation.level": "read_committed", "failOnDataLoss": "true"}


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The address of the Kafka cluster, and the options of its clients.

    The function `client_options` returns these options.
    """

    bootstrap_servers: str
    # Secrets are among the options.
    options: Mapping[str, str] = field(repr=False)


class LogSource:
    """A reader of the records of slices, in this process or in Spark's tasks.

    Exactly the records between the bounds of a slice are read.
    """

    def __init__(self, kafka: KafkaAccess, log: Log) -> None:
        self._kafka = kafka
        self._log = log
        self._reader = log.reader()
        # Per partition, the last record of its last reading.
        self._last: dict[tuple[str, int], Witness] = {}

    def read_records(self, piece: Slice) -> pa.Table:
        """Reads the raw records of all topics of a small slice into one Arrow table.

        No Spark job runs, since a job would take longer than reading the records.
        """
        last: dict[tuple[str, int], Record] = {}
        table = raw_table(_noted(self._reader.read(piece.start, piece.end), last))
        self._last = {part: witness_of(record) for part, record in last.items()}
        return table

    def witnesses(self) -> Witnesses:
        """Returns a witness of the last record of each partition in the most recently read slice.

        For a large slice, these witnesses are read before the slice itself. So if the log still
        contains the witnessed records later, the slice was read from the same log.
        """
        found: dict[str, dict[int, Witness]] = {}
        for (topic, partition), witness in self._last.items():
            found.setdefault(topic, {})[partition] = witness
        return found

    def ranges(self, piece: Slice, topic: str) -> list[RawRange]:
        """Returns the topic's ranges of offsets in a large slice.

        There is a range for each partition with at least one offset in the slice.
        """
        self._last = {part: one for part, one in self._last.items() if part[0] != topic}
        self._last |= self._log.last_before(piece.end.only({topic}))
        bounds = (
            (partition, piece.start.at(topic, partition), end)
            for partition, end in sorted(piece.end.next.get(topic, {}).items())
        )
        return [
            RawRange(partition, start, end, partial(_read_range, self._kafka, topic))
            for partition, start, end in bounds
            if end > start
        ]

    def batches(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yields the raw records of a partition from `start` to before `end`, in batches.

        The records are read in this process. The consumer is closed at the end of the range, since
        an open consumer would also fetch later records.
        """
        return _read_range(self._kafka, topic, partition, start, end)

    def wait_beyond(self, end: Offsets, seconds: float) -> bool:
        """Waits until the log has records after the offsets `end`, at most `seconds` seconds.

        Returns False if the log has no such records yet. The broker answers when it has records, so
        no repeated requests are needed.
        """
        return self._reader.wait_beyond(end, seconds)

    def close(self) -> None:
        """Closes the connection to the broker."""
        self._reader.close()


def _noted(records: Iterable[Record], last: dict[tuple[str, int], Record]) -> Iterator[RawRecord]:
    """Yields each of the records as a raw record, and stores the last record per partition.

    The mapping `last` gets these last records, by topic and partition.
    """
    for record in records:
        last[record.topic, record.partition] = record
        yield (
            record.topic,
            record.partition,
            record.offset,
            max(-_MOST_MS, min(record.timestamp_ms, _MOST_MS)) * 1000,
            record.key,
            record.value,
            record.headers,
        )


def _read_range(
    kafka: KafkaAccess, topic: str, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    for found in Log(kafka.bootstrap_servers, kafka.options).read_columns(
        topic, partition, start, end
    ):
        count = len(found.offsets)
        times = pa.array(found.timestamps_ms.clip(-_MOST_MS, _MOST_MS) * 1000).cast(
            RAW_SCHEMA.field("timestamp").type
        )
        columns = [
            pa.repeat(topic, count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(found.offsets),
            times,
            found.keys,
            found.values,
            found.headers,
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def read_tail(
    spark: SparkSession, kafka: KafkaAccess, start: Offsets, topics: Iterable[str], *, at_most: int
) -> DataFrame:
    """Returns an endless stream of the topics, which begins at the offsets `start`.

    The stream only plans the micro-batches; `LogSource` reads their records. `start` is the start
    of the first micro-batch of a new checkpoint, and names every partition that the topics have
    now. Partitions that are added later begin at 0. `at_most` limits the number of offsets in a
    micro-batch.
    """
    _lend_secrets(kafka, spark)
    options = {
        **_options(kafka),
        "subscribe": ",".join(sorted(topics)),
        "startingOffsets": start.to_json(),
        "maxOffsetsPerTrigger": str(at_most),
    }
    return spark.readStream.format("kafka").options(**options).load()


def batch_bounds(checkpoint: Path, batch: int, first: Offsets) -> tuple[Offsets, Offsets]:
    """Returns the start and the end of a micro-batch of the tail, read from the checkpoint.

    Spark writes both into the checkpoint before it runs the micro-batch. The stream begins at
    `first`.
    """
    start = first if batch == 0 else _batch_end(checkpoint, batch - 1)
    return start, _batch_end(checkpoint, batch)


def _lend_secrets(kafka: KafkaAccess, spark: SparkSession) -> None:
    """Checks that the JVM has the secrets of the options, and lets the JVM request tokens.

    The JVM reads the secrets from its environment. If the options contain the URL of a token
    server, the JVM may request tokens from this URL. Raises KappaError if the JVM was started with
    other secrets.
    """
    jvm = spark._jvm  # noqa: SLF001  # PySpark has no other way to it
    assert jvm is not None, "the session's JVM runs"
    for name, value in secret_variables(kafka.options).items():
        if jvm.System.getenv(name) != value:
            raise KappaError(
                "a secret of kafka.auth has changed since this job's JVM was started",
                hint="the job is started again by itself, with the new one",
            )
    if token_url(kafka.options):
        jvm.System.setProperty(ALLOWED_URLS, token_url(kafka.options))


def _options(kafka: KafkaAccess) -> dict[str, str]:
    given = named_secrets(java_options(kafka.options))
    return {
        **{f"kafka.{name}": value for name, value in given.items()},
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        **_EXACT,
    }


def _batch_end(checkpoint: Path, batch: int) -> Offsets:
    """Returns the end of a micro-batch, read from the micro-batch's file in the checkpoint.

    The file contains a line for the version, a line for the settings, and a line per source. Raises
    Damaged if the file is missing or has wrong content, and KappaError if the machine fails to read
    the file.
    """
    file = checkpoint / "offsets" / str(batch)
    try:
        version, _, ends = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise unreadable(
            f"the checkpoint's {file} cannot be read: {error}",
            error,
            hint="kappa replay makes a new build",
        ) from error
    if version != "v1":
        raise Damaged(
            f"the checkpoint's {file} has the version {version}, which this Kappa does not know"
        )
    return Offsets.parse(ends)
