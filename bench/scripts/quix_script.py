"""Quix Streams: state by message key in RocksDB, with a changelog topic, in one process.

    python quix_script.py BOOTSTRAP TOPIC FOLDER

Reads as many messages as the topic contains, writes `FOLDER/totals.csv` and `FOLDER/warm.json`, and
exits. The final rows come from a dict that is kept in addition to the state. So no sink writes rows
before the end, which is an advantage for Quix.
https://quix.io/docs/quix-streams/advanced/stateful-processing.html
"""

from __future__ import annotations

import itertools
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application, State

# The first messages are not warm: the group is joined and state is made.
COLD = 100_000
bootstrap, topic, folder = sys.argv[1:4]


def messages() -> int:
    """Returns the number of messages in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    bounds = [consumer.get_watermark_offsets(TopicPartition(topic, each)) for each in partitions]
    consumer.close()
    return sum(end - first for first, end in bounds)


made: dict[int, list[int]] = {}
# When the last cold message was folded.
warm_at: list[float] = []
seen = itertools.count(1)


def fold(bid: dict[str, Any], state: State) -> None:
    price = bid["price"]
    bids, total, lowest, highest = state.get("totals", [0, 0, price, price])
    row = [bids + 1, total + price, min(lowest, price), max(highest, price)]
    state.set("totals", row)
    made[bid["bidder"]] = row
    if next(seen) == COLD:
        warm_at.append(time.monotonic())


count = messages()
application = Application(
    broker_address=bootstrap,
    # A group of its own: with the group of an earlier run, it would begin at the end.
    consumer_group=f"quix-{secrets.token_hex(4)}",
    auto_offset_reset="earliest",
    state_dir=f"{folder}/state",
    loglevel="WARNING",
    consumer_extra_config={
        "fetch.message.max.bytes": 16 << 20,
        "queued.min.messages": 500_000,
        "queued.max.messages.kbytes": 262_144,
    },
)
bids_of = application.dataframe(application.topic(topic, value_deserializer="json"))
bids_of.update(fold, stateful=True)
application.run(count=count)
with Path(folder, "totals.csv").open("w", encoding="utf-8") as rows:
    rows.write("bidder,bids,total,lowest,highest\n")
    rows.writelines(f"{key},{','.join(map(str, row))}\n" for key, row in made.items())
if warm_at:
    Path(folder, "warm.json").write_text(
        json.dumps({"events": count - COLD, "seconds": time.monotonic() - warm_at[0]}),
        encoding="utf-8",
    )
