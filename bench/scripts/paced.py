"""The producer of the freshness cell: sends bids at a steady rate until its input ends.

    python paced.py BOOTSTRAP TOPIC PARTITIONS KEYS RATE LEDGER

The script chooses the partition of each bid. The script is the topic's only producer, so it
determines each record's offset by counting. Writes LEDGER, a Parquet file with (partition, offset,
sent_at); `sent_at` is in seconds of the clock that all processes of a machine share. The script
adds the bench's folder to its module path.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq
from bids import bids

from demo.processes.end_of_input import stop_at_end_of_input
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

# A record is not kept back by it, and the loop costs little.
BEAT_SECONDS = 0.01
# What a busy machine made it miss is made up for, but not more than so much of it at once.
MOST_SECONDS = 1.0
CHUNK = 10_000

bootstrap, topic, partitions, keys, rate, ledger = sys.argv[1:7]
log = Log(bootstrap, {"linger.ms": "5"})
stop = stop_at_end_of_input()
places = {partition: offset for _, partition, offset in log.high_watermark([topic]).items()}
begin = sum(places.values())
records = (
    record for first in count(begin, CHUNK) for record in bids(first, first + CHUNK, int(keys))
)
sent: list[tuple[int, int, float]] = []
with log.producer() as producer:
    began, numbers = time.monotonic(), 0
    while not stop.wait(BEAT_SECONDS):
        due = int((time.monotonic() - began) * float(rate)) - numbers
        for _ in range(min(due, int(float(rate) * MOST_SECONDS))):
            record, partition = next(records), numbers % int(partitions)
            sent.append((partition, places[partition], time.monotonic()))
            # Stamped when it is sent, as a producer does.
            producer.send(topic, ProducedRecord(record.value, key=record.key, partition=partition))
            places[partition] += 1
            numbers += 1
    acknowledged = producer.flush().offsets
    assert all(
        acknowledged.at(topic, partition) == end
        for partition, end in places.items()
        if numbers >= int(partitions)
    ), "somebody else has written to the topic"
pq.write_table(
    pa.table(
        dict(
            zip(("partition", "offset", "sent_at"), map(list, zip(*sent, strict=True)), strict=True)
        )
    ),
    ledger,
)
