"""Measures the upper limit for Python: a confluent_kafka consumer that reads only value lengths.

    python consume.py BOOTSTRAP TOPIC FOLDER

Writes `FOLDER/consumed.csv` (records and bytes per partition) and `FOLDER/warm.json`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

BATCH = 50_000
bootstrap, topic, folder = sys.argv[1:4]
options = {
    "group.id": "consume",
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 16 << 20,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 262_144,
}
consumer = Consumer({"bootstrap.servers": bootstrap, **options})
places, left = [], 0
for partition in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    places.append(TopicPartition(topic, partition, first))
    left += end - first
consumer.assign(places)
records: Counter[int] = Counter()
size: Counter[int] = Counter()
begun, events_after = 0.0, 0
while left:
    messages = consumer.consume(min(BATCH, left), 1.0)
    for message in messages:
        partition = message.partition()
        records[partition] += 1
        size[partition] += len(message)
    left -= len(messages)
    if messages and not begun:
        begun, events_after = time.monotonic(), left
ended = time.monotonic()
consumer.close()
lines = [
    "partition,records,bytes",
    *(f"{partition},{records[partition]},{size[partition]}" for partition in sorted(records)),
]
Path(folder, "consumed.csv").write_text("\n".join(lines), encoding="utf-8")
if events_after:
    Path(folder, "warm.json").write_text(
        json.dumps({"events": events_after, "seconds": ended - begun}), encoding="utf-8"
    )
