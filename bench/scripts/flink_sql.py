"""PyFlink SQL: a bounded Kafka table and a query, in batch mode or as a stream.

    python flink_sql.py BOOTSTRAP TOPIC FOLDER CONNECTOR_JAR CORES TASK TABLE [INTO_TOPIC | tail]

In batch mode, writes lines of JSON into `FOLDER/TABLE/`. With INTO_TOPIC, runs as a stream in
mini-batches, and writes the newest row per key to that topic. As a `tail`, appends rows with their
partition and offset in the topic to files, with a checkpoint per second, until the process is
killed. The options (object reuse, large fetches) are the fastest that were found here.
https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/kafka/
"""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

bootstrap, topic, folder, jar, cores, task, name = sys.argv[1:8]
is_tail = sys.argv[8:] == ["tail"]
into = None if is_tail or len(sys.argv) <= 8 else sys.argv[8]
# What is used of the seven fields, what comes out, and how.
used, made, query = {
    "totals": (
        "bidder bigint, price bigint",
        "bidder bigint, bids bigint, total bigint, lowest bigint, highest bigint",
        "select bidder, count(*), sum(price), min(price), max(price) from bids group by bidder",
    ),
    "projection": (
        "auction bigint, bidder bigint, price bigint, `dateTime` bigint",
        "auction bigint, bidder bigint, euros bigint, ms bigint",
        "select auction, bidder, price * 908 / 1000, `dateTime` from bids",
    ),
    "windows": (
        "bidder bigint, price bigint, `dateTime` bigint",
        "bidder bigint, began bigint, bids bigint, total bigint",
        (
            "select bidder, began, count(*), sum(price) from (select bidder, `dateTime` - "
            "mod(`dateTime`, 600000) as began, price from bids) group by bidder, began"
        ),
    ),
}[task]
bounded = "'scan.bounded.mode' = 'latest-offset'"
if is_tail:
    place = ", src_partition int{0}, src_offset bigint{1}"
    used += place.format(" metadata from 'partition' virtual", " metadata from 'offset' virtual")
    made += place.format("", "")
    query = query.replace(" from bids", ", src_partition, src_offset from bids")
    bounded = "'scan.bounded.mode' = 'unbounded'"
flink = TableEnvironment.create(
    EnvironmentSettings.in_streaming_mode()
    if is_tail or into is not None
    else EnvironmentSettings.in_batch_mode()
)
options = {
    "pipeline.jars": f"file://{jar}",
    "parallelism.default": cores,
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.memory.network.max": "256m",
    "pipeline.object-reuse": "true",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
if into is not None:
    options |= {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
    }
if is_tail:
    options |= {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
    }
for option, value in options.items():
    flink.get_config().set(option, value)
# Flink's JSON format decodes no other fields than those of the table.
flink.execute_sql(f"""
    create table bids ({used}) with (
        'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
        'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink',
        'properties.max.poll.records' = '20000',
        'properties.max.partition.fetch.bytes' = '16777216',
        'scan.startup.mode' = 'earliest-offset', {bounded})""")
if into is None:
    # Rows are seen once their file is closed and a checkpoint has ended.
    rolling = (
        """, 'sink.rolling-policy.rollover-interval' = '200 ms',
            'sink.rolling-policy.check-interval' = '100 ms'"""
        if is_tail
        else ""
    )
    flink.execute_sql(
        f"create table made ({made}) with ('connector' = 'filesystem', 'path' = "
        f"'file://{folder}/{name}', 'format' = 'json'{rolling})"
    )
else:
    flink.execute_sql(f"""
        create table made ({made}, primary key (bidder) not enforced)
        with ('connector' = 'upsert-kafka', 'topic' = '{into}',
            'properties.bootstrap.servers' = '{bootstrap}',
            'key.format' = 'json', 'value.format' = 'json')""")
flink.execute_sql(f"insert into made {query}").wait()
