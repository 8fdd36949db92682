"""The short script without a JVM: confluent_kafka consumes, Polars decodes, delta-rs writes.

    python polars_script.py BOOTSTRAP TOPIC FOLDER TASK TABLE

A second thread decodes and aggregates. All rows of the table stay in memory, and are written once
at the end. Writes `FOLDER/TABLE` (Delta) and `FOLDER/warm.json`.
"""

from __future__ import annotations

import io
import json
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import polars as pl
from confluent_kafka import Consumer, TopicPartition
from deltalake import write_deltalake

BATCH = 100_000
bootstrap, topic, folder, task, name = sys.argv[1:6]
used = {
    "totals": ["bidder", "price"],
    "windows": ["bidder", "price", "dateTime"],
    "projection": ["auction", "bidder", "price", "dateTime"],
}[task]
options = {
    "group.id": "polars",
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 16 << 20,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 262_144,
}
consumer = Consumer({"bootstrap.servers": bootstrap, **options})
parts: list[pl.DataFrame] = []


def aggregate(values: list[bytes]) -> None:
    rows = pl.read_ndjson(io.BytesIO(b"\n".join(values)), schema=dict.fromkeys(used, pl.Int64))
    price, at = pl.col("price"), pl.col("dateTime")
    match task:
        case "projection":
            parts.append(rows.select("auction", "bidder", euros=price * 908 // 1000, ms=at))
        case "windows":
            parts.append(
                rows.group_by("bidder", began=at - at % 600_000).agg(
                    bids=pl.len().cast(pl.Int64), total=price.sum()
                )
            )
        case _:
            parts.append(
                rows.group_by("bidder").agg(
                    bids=pl.len().cast(pl.Int64),
                    total=price.sum(),
                    lowest=price.min(),
                    highest=price.max(),
                )
            )


places, left = [], 0
for partition in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    places.append(TopicPartition(topic, partition, first))
    left += end - first
consumer.assign(places)
first_done, events_after = 0.0, left
with ThreadPoolExecutor(1) as beside:
    under_way: Future[None] | None = None
    while left:
        values = [message.value() for message in consumer.consume(min(BATCH, left), 1.0)]
        left -= len(values)
        if under_way is not None:
            under_way.result()
            if not first_done:
                first_done, events_after = time.monotonic(), left + len(values)
        under_way = beside.submit(aggregate, values) if values else None
    if under_way is not None:
        under_way.result()
consumer.close()
whole, sums = pl.concat(parts), (pl.col("bids").sum(), pl.col("total").sum())
match task:
    case "windows":
        whole = whole.group_by("bidder", "began").agg(*sums)
    case "totals":
        whole = whole.group_by("bidder").agg(*sums, pl.col("lowest").min(), pl.col("highest").max())
write_deltalake(f"{folder}/{name}", whole)
if first_done:
    Path(folder, "warm.json").write_text(
        json.dumps({"events": events_after, "seconds": time.monotonic() - first_done}),
        encoding="utf-8",
    )
