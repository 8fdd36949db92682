"""Pathway: a group by over all messages in the topic, written once.

    python pathway_script.py BOOTSTRAP TOPIC FOLDER

The environment variable PATHWAY_THREADS is the number of threads. Writes `FOLDER/totals.csv`.
https://pathway.com/developers/api-docs/pathway-io/kafka
"""

from __future__ import annotations

import sys

import pathway as pw

bootstrap, topic, folder = sys.argv[1:4]


class Bid(pw.Schema):
    bidder: int
    price: int


bids = pw.io.kafka.read(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "pathway",
        "auto.offset.reset": "beginning",
        "fetch.message.max.bytes": "16777216",
        "queued.min.messages": "500000",
        "queued.max.messages.kbytes": "262144",
    },
    topic=topic,
    schema=Bid,
    format="json",
    mode="static",
)
totals = bids.groupby(pw.this.bidder).reduce(
    pw.this.bidder,
    bids=pw.reducers.count(),
    total=pw.reducers.sum(pw.this.price),
    lowest=pw.reducers.min(pw.this.price),
    highest=pw.reducers.max(pw.this.price),
)
pw.io.csv.write(totals, f"{folder}/totals.csv")
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
