"""The oracle: DuckDB computes each result from the raw records up to the same offsets.

The topic is consumed once per input, as bytes, and stored as Parquet. The expected rows of a task
are computed once and stored. If a rival's rows differ from the expected rows, the rival gets no
figures.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from bids import Input
from cells import CONSUMED, TASKS, Cell
from confluent_kafka import Consumer, TopicPartition

from kappa.state.files.duckdb_access import renew_access
from kappa.state.offsets import Offsets

_RAW = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("logged", pa.int64()),
        ("bytes", pa.int32()),
        ("value", pa.string()),
    ]
)
_BATCH = 50_000
_PATIENCE_SECONDS = 60.0
_BIDS = """
    create view log as select * from read_parquet('{raw}');
    create view bids as
    select * exclude (bid), bid.auction, bid.bidder, bid.price, bid.channel, bid.url, bid.extra,
        bid."dateTime" as ms
    from (
        select "partition", "offset",
            json_transform(value, '{{"auction":"BIGINT","bidder":"BIGINT","price":"BIGINT",
                "channel":"VARCHAR","url":"VARCHAR","dateTime":"BIGINT","extra":"VARCHAR"}}') as bid
        from log
    )"""

# Table -> what DuckDB reads its rows from (`read_parquet([...])`), with the task's column names.
# An empty text means that it has no rows.
Rows = Mapping[str, str]


class Oracle:
    """The expected results for the input of one cell."""

    def __init__(
        self,
        bootstrap_servers: str,
        given: Input,
        cell: Cell,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """Consumes the topic and computes the expected rows, unless both are stored already."""
        self._folder = folder / f"{given.topic}.{given.id}"
        self._folder.mkdir(parents=True, exist_ok=True)
        raw = self._folder / "raw.parquet"
        if not raw.exists():
            begun = time.monotonic()
            consume(bootstrap_servers, given.topic, given.offsets, raw)
            say(f"the log was consumed for the oracle in {time.monotonic() - begun:.0f} s")
        self._wanted = {
            table: self._kept(raw, cell.fill(sql))
            for table, sql in {**TASKS[cell.task].wanted, **CONSUMED}.items()
        }

    def differences(self, found: Rows) -> str | None:
        """Compares a result with the expected rows, and returns a text with the differences.

        Returns None if all tables are equal.
        """
        with duckdb.connect(":memory:") as connection:
            renew_access(connection)
            told = [
                text
                for table, rows in found.items()
                if (text := difference(connection, table, rows, self._wanted[table])) is not None
            ]
        return "; ".join(told) or None

    def _kept(self, raw: Path, sql: str) -> Path:
        """Returns a file with the rows of an SQL query over the topic's records.

        The rows are computed only if no earlier run has stored the file.
        """
        kept = self._folder / f"{hashlib.sha256(sql.encode()).hexdigest()[:16]}.parquet"
        if not kept.exists():
            written = kept.with_suffix(".new")
            with duckdb.connect(":memory:") as connection:
                connection.execute(
                    f"set memory_limit = '4GB'; set temp_directory = '{self._folder / 'spill'}'"
                )
                connection.execute(_BIDS.format(raw=raw))
                connection.execute(f"copy ({sql}) to '{written}' (format parquet)")
            written.replace(kept)
        return kept


def difference(
    connection: duckdb.DuckDBPyConnection, table: str, rows: str, wanted: Path
) -> str | None:
    """Returns a text with the difference between rows and the expected rows, or None if equal.

    `rows` is a relation in SQL, and `wanted` is the Parquet file with the expected rows of `table`.
    """
    try:
        # Columns by name, in any order, cast to the wanted types: a value that does not fit fails.
        columns = ", ".join(
            f'"{name}"::{kind} as "{name}"'
            for name, kind, *_ in connection.execute(f"describe from '{wanted}'").fetchall()
        )
        nothing = f"(from '{wanted}' limit 0)"
        connection.execute(
            f"create or replace temp table found as select {columns} from {rows or nothing}"
        )
    except duckdb.Error as error:
        return f"table {table} cannot be read: {' '.join(str(error).split())[:200]}"
    one, other = f"from '{wanted}' except all from found", f"from found except all from '{wanted}'"
    missing, unexpected = (
        connection.execute(f"select count(*) from ({sql})").fetchall()[0][0] for sql in (one, other)
    )
    if not missing and not unexpected:
        return None
    sample = connection.execute(f"from ({other if unexpected else one}) limit 1").fetchall()
    return (
        f"table {table} lacks {missing} rows and has {unexpected} that it should not have, "
        f"{'such as' if unexpected else 'missing'} {sample[0]}"
    )


def consume(bootstrap_servers: str, topic: str, offsets: Offsets, into: Path) -> None:
    """Writes the records of a topic before the given offsets to a Parquet file, unchanged.

    The column `logged` contains the timestamp of each record in milliseconds.
    """
    ends = {partition: end for _, partition, end in offsets.items() if end}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    written, left = into.with_suffix(".new"), sum(ends.values())
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        with pq.ParquetWriter(written, _RAW, compression="zstd") as file:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while left:
                messages = consumer.consume(min(_BATCH, left), 1.0)
                if not messages and time.monotonic() > deadline:
                    raise SystemExit(
                        f"nothing came of {topic} for {_PATIENCE_SECONDS:.0f} seconds, "
                        f"{left} records before its end"
                    )
                rows = []
                for message in messages:
                    if message.error() is not None:
                        raise SystemExit(f"{topic} could not be consumed: {message.error()}")
                    if message.offset() < ends[message.partition()]:
                        rows.append(
                            (
                                message.partition(),
                                message.offset(),
                                message.timestamp()[1],
                                len(message.value()),
                                message.value().decode(),
                            )
                        )
                if rows:
                    deadline = time.monotonic() + _PATIENCE_SECONDS
                    left -= len(rows)
                    file.write_table(
                        pa.table(
                            [
                                pa.array(column, field.type)
                                for column, field in zip(zip(*rows, strict=True), _RAW, strict=True)
                            ],
                            schema=_RAW,
                        )
                    )
    finally:
        consumer.close()
    written.replace(into)
