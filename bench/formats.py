"""Measures the CPU time for decoding an event in each format, compared with the event in JSON.

    python bench --cell formats

A library for each format writes the same bids in this format. The bids are then decoded into a file
in the same way as a Spark worker decodes a part of a large slice: with the same batches and the
same Parquet columns, but without a broker and without Spark. The formats are measured in turns.
Each file must contain the rows from which DuckDB made the bids.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
from fastavro import parse_schema, schemaless_writer
from google.protobuf import message_factory
from ground import say
from screen import Report, table

from kappa import Avro, Csv, Json, Protobuf, Topic
from kappa.declare.formats.protobuf_schema import message_named, message_types
from kappa.declare.formats.registry_schemas import RegisteredSchema, frame_message, open_schemas
from kappa.records.decode.decoder import loading_plain_readers
from kappa.records.decode.parquet_decoder import Remembering, decode_to_file
from kappa.records.decode.raw_records import raw_table

EVENTS = 500_000
# As the reader of a long range has them (kappa/kafka/bulk_reader.py).
_BATCH = 50_000
_DATA = Path(__file__).parents[1] / "tests" / "data"
_AVRO_ID, _PROTOBUF_ID, _JSON_ID = 1, 2, 3
_EVENT = (
    "auction bigint not null, bidder bigint not null, price double not null, channel string, "
    "url string not null, at timestamp, first boolean not null"
)
_BIDS = """
create table bids as select
    1000 + i * 7919 % 100003 as auction,
    1000 + i * 104729 % 16381 as bidder,
    (i * 31 % 999983) / 100.0::double as price,
    case i % 4 when 0 then null when 1 then 'Google' when 2 then 'Größe' else 'channel-' || i end
        as channel,
    'https://www.nexmark.com/' || hash(i) || '/item.htm?query=1' as url,
    make_timestamp(1700000000000000 + i * 10000) as at,
    i % 3 = 0 as first
from range({events}) numbers(i)
"""
# What they are written for.
_JSON, _TARGET = "JSON", 1.5
_HELD = ("Avro", "Protobuf")

Row = Mapping[str, Any]


class _Schemas:
    """A substitute for a schema registry, with the schemas of two formats by id."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        kind, file = {_AVRO_ID: ("AVRO", "bid.avsc"), _PROTOBUF_ID: ("PROTOBUF", "bid.proto")}[
            schema_id
        ]
        return RegisteredSchema(kind, (_DATA / file).read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Decoding:
    """The cost of decoding one format.

    `micros` contains the CPU microseconds per event, with a value per round. `bytes` is the mean
    size of an event.
    """

    name: str
    micros: Sequence[float]
    bytes: float


def main(home: Path, rounds: int, events: int = EVENTS) -> Report | None:
    """Measures every format. Returns None if decoded rows differ from the written rows."""
    folder = home / "formats"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    open_schemas(_Schemas())
    try:
        took = _measured(folder, rounds, events)
    finally:
        open_schemas(None)
        shutil.rmtree(folder)
    return None if took is None else _report(took, events)


def _measured(folder: Path, rounds: int, events: int) -> Sequence[Decoding] | None:
    with duckdb.connect() as bids:
        bids.execute("set timezone = 'UTC'")
        bids.execute(_BIDS.format(events=events))
        logs = dict(_logs(bids.table("bids").to_arrow_table().to_pylist()))
        took: dict[str, list[float]] = {name: [] for name in logs}
        # The first turn loads what a process loads once.
        for turn in range(rounds + 1):
            for name, (topic, log) in logs.items():
                path = folder / f"{name}.parquet"
                begun = time.process_time()
                decode_to_file(log if turn else log[:1], topic, {}, Remembering(), path)
                spent = time.process_time() - begun
                if turn:
                    took[name].append(spent / events * 1e6)
                    if not equal_rows(bids, path):
                        say(f"{name}: the rows are not those of the log")
                        return None
    return [
        Decoding(name, took[name], sum(each.column("value").nbytes for each in log) / events)
        for name, (_, log) in logs.items()
    ]


def _logs(rows: Sequence[Row]) -> Iterator[tuple[str, tuple[Topic, Sequence[pa.RecordBatch]]]]:
    """Yields the name of each format, with its topic and the batches of its log."""
    loading_plain_readers().result()
    schema = parse_schema(json.loads((_DATA / "bid.avsc").read_text(encoding="utf-8")))
    bid = message_factory.GetMessageClass(
        message_named(message_types((_DATA / "bid.proto").read_text(encoding="utf-8")), None)
    )

    def as_json(row: Row) -> bytes:
        at = f"{row['at'].isoformat()}Z"
        return json.dumps({**row, "at": at}, ensure_ascii=False).encode()

    def as_avro(row: Row) -> bytes:
        into = io.BytesIO()
        schemaless_writer(into, schema, {**row, "at": _millis(row)})
        return frame_message(_AVRO_ID, into.getvalue())

    def as_protobuf(row: Row) -> bytes:
        made = bid(**{name: value for name, value in row.items() if name != "at"})
        made.at.FromDatetime(row["at"])
        return frame_message(_PROTOBUF_ID, b"\0" + made.SerializeToString())

    def as_csv(row: Row) -> bytes:
        into = io.StringIO()
        values = {**row, "at": _millis(row), "first": str(row["first"]).lower()}
        csv.writer(into, lineterminator="").writerow(values.values())
        return into.getvalue().encode()

    written: Mapping[str, tuple[Topic, Callable[[Row], bytes]]] = {
        _JSON: (Topic("bids", event=_EVENT), as_json),
        "framed JSON": (
            Topic("bids", event=_EVENT, format=Json(framed=True)),
            lambda row: frame_message(_JSON_ID, as_json(row)),
        ),
        "Avro": (Topic("bids", format=Avro("tests/data/bid.avsc", framed=True)), as_avro),
        "Protobuf": (
            Topic("bids", format=Protobuf("tests/data/bid.proto", framed=True)),
            as_protobuf,
        ),
        "CSV": (Topic("bids", event=_EVENT, format=Csv()), as_csv),
    }
    for name, (topic, write) in written.items():
        say(f"writing {len(rows):,} events as {name}")
        log = raw_table(
            ("bids", 0, number, 1_700_000_000_000_000 + number, None, write(row), ())
            for number, row in enumerate(rows)
        )
        yield name, (topic, log.combine_chunks().to_batches(max_chunksize=_BATCH))


def _millis(row: Row) -> int:
    return round(row["at"].replace(tzinfo=UTC).timestamp() * 1000)


def equal_rows(bids: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Returns True if a decoded file contains exactly the rows in the DuckDB table `bids`."""
    columns = 'auction, bidder, price, channel, url, "at"::timestamp as "at", first'
    found = f"select {columns} from '{path}' where _fate = 0"
    wanted = "select * from bids"
    count = bids.sql(
        f"select count(*) from (({found} except all {wanted}) union all "
        f"({wanted} except all {found}))"
    ).fetchone()
    return count == (0,)


def _report(found: Sequence[Decoding], events: int) -> Report:
    base = median(found[0].micros)
    head = ("format", "us of CPU an event", "times JSON's", "each round, times", "bytes an event")
    rows = [
        (
            each.name,
            f"{median(each.micros):.2f}",
            f"{median(each.micros) / base:.2f}",
            ", ".join(
                f"{micros / json_micros:.2f}"
                for micros, json_micros in zip(each.micros, found[0].micros, strict=True)
            ),
            f"{each.bytes:.0f}",
        )
        for each in found
    ]
    held = all(median(each.micros) <= _TARGET * base for each in found if each.name in _HELD)
    note = (
        f"{events:,} events, medians of {len(found[0].micros)} rounds in turns. The target, at "
        f"most {_TARGET} times for {' and '.join(_HELD)}: {'met' if held else 'MISSED'}."
    )
    ratios = ", ".join(f"{each.name} {median(each.micros) / base:.2f}x" for each in found[1:])
    line = f"bench formats, {events} events: JSON {base:.2f} us; {ratios}"
    return Report(line, found, f"{table(head, rows)}\n\n{note}")
