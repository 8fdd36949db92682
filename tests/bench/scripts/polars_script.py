"""The short script without a JVM: confluent_kafka consumes, Polars decodes and aggregates in a second thread, delta-rs writes.

    python polars_script.py BOOTSTRAP TOPIC FOLDER

It keeps all keys in memory and writes once, at the end. Leaves `FOLDER/totals` (Delta) and `FOLDER/warm.json`.
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
USED = {"bidder": pl.Int64, "price": pl.Int64}
bootstrap, topic, folder = sys.argv[1:4]
options = {"group.id": "polars", "enable.auto.commit": False, "fetch.message.max.bytes": 16 << 20, "queued.min.messages": 500_000, "queued.max.messages.kbytes": 262_144}
consumer = Consumer({"bootstrap.servers": bootstrap, **options})
parts: list[pl.DataFrame] = []


def aggregate(values: list[bytes]) -> None:
    rows = pl.read_ndjson(io.BytesIO(b"\n".join(values)), schema=USED)
    price = pl.col("price")
    parts.append(rows.group_by("bidder").agg(bids=pl.len().cast(pl.Int64), total=price.sum(), lowest=price.min(), highest=price.max()))


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
price = pl.col("total").sum(), pl.col("lowest").min(), pl.col("highest").max()
write_deltalake(f"{folder}/totals", pl.concat(parts).group_by("bidder").agg(pl.col("bids").sum(), *price))
if first_done:
    Path(folder, "warm.json").write_text(json.dumps({"events": events_after, "seconds": time.monotonic() - first_done}), encoding="utf-8")
