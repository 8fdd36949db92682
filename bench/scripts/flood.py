"""The producer of the rate cell: sends bids at a steady, high rate until its input ends.

    python flood.py BOOTSTRAP TOPIC PARTITIONS KEYS RATE LEDGER

The bids are generated in advance and sent repeatedly, in batches, so that the producer needs little
CPU time. The script is the topic's only producer, so it determines each record's offset by
counting. Writes LEDGER, a Parquet file with (partition, offset, sent_at) for each tenth event.
`sent_at` is in seconds of the clock that all processes of a machine share. The script adds the
bench's folder to its module path.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq
from bids import bids
from confluent_kafka import KafkaError, Producer

from demo.processes.end_of_input import stop_at_end_of_input
from kappa.kafka.client import Log

POOL = 200_000
# So much of the topic is in the ledger.
EACH = 10
# A record is not kept back by it, and the loop costs little.
BEAT_SECONDS = 0.01
# What a busy machine made it miss is made up for, but not more than so much of it at once.
MOST_SECONDS = 0.5
_FLUSH_SECONDS = 120.0

bootstrap, topic, partitions, keys, rate, ledger = sys.argv[1:7]
parts, wanted = int(partitions), float(rate)
failed: list[KafkaError] = []
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 524_288,
        "error_cb": lambda error: failed.append(error) if error.fatal() else None,
    }
)
pool = [{"key": record.key, "value": record.value} for record in bids(0, POOL, int(keys))]
stop = stop_at_end_of_input()
log = Log(bootstrap)
places = {partition: offset for _, partition, offset in log.high_watermark([topic]).items()}
noted: dict[str, list[float]] = {"partition": [], "offset": [], "sent_at": []}
began, sent, at = time.monotonic(), 0, 0
while not (stop.wait(BEAT_SECONDS) or failed):
    due = min(int((time.monotonic() - began) * wanted) - sent, int(wanted * MOST_SECONDS))
    share = min(due // parts, POOL // 2)
    for partition in range(parts if share > 0 else 0):
        at = 0 if at + share > POOL else at
        now = time.monotonic()
        # A full queue takes fewer.
        taken = producer.produce_batch(topic, pool[at : at + share], partition=partition)
        first = -(-places[partition] // EACH) * EACH
        offsets = range(first, places[partition] + taken, EACH)
        noted["partition"] += [partition] * len(offsets)
        noted["offset"] += offsets
        noted["sent_at"] += [now] * len(offsets)
        places[partition] += taken
        sent += taken
        at += share
    producer.poll(0)
left = producer.flush(_FLUSH_SECONDS)
ends = {partition: end for _, partition, end in log.high_watermark([topic]).items()}
assert not failed, f"the producer has failed: {failed[0]}"
assert not left, f"{left} records were not acknowledged"
assert ends == places, f"the topic ends at {ends}, and {places} were sent"
pq.write_table(pa.table(noted), ledger)
