"""PyFlink SQL: a bounded Kafka table and a query, in batch mode or as a stream.

    python flink_sql.py BOOTSTRAP TOPIC FOLDER CONNECTOR_JAR CORES TASK TABLE [INTO_TOPIC]

Batch mode leaves `FOLDER/TABLE/` (lines of JSON). With INTO_TOPIC it streams in mini-batches into
that topic, the newest row per key. Its options are the fastest found here (object reuse, large
fetches). https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/kafka/
"""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

bootstrap, topic, folder, jar, cores, task, name = sys.argv[1:8]
into = sys.argv[8] if len(sys.argv) > 8 else None
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
flink = TableEnvironment.create(
    EnvironmentSettings.in_batch_mode() if into is None else EnvironmentSettings.in_streaming_mode()
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
for option, value in options.items():
    flink.get_config().set(option, value)
# Flink's JSON format decodes no other fields than those of the table.
flink.execute_sql(f"""
    create table bids ({used}) with (
        'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
        'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink',
        'properties.max.poll.records' = '20000',
        'properties.max.partition.fetch.bytes' = '16777216',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')""")
if into is None:
    flink.execute_sql(
        f"create table made ({made}) with ('connector' = 'filesystem', 'path' = "
        f"'file://{folder}/{name}', 'format' = 'json')"
    )
else:
    flink.execute_sql(f"""
        create table made ({made}, primary key (bidder) not enforced)
        with ('connector' = 'upsert-kafka', 'topic' = '{into}',
            'properties.bootstrap.servers' = '{bootstrap}',
            'key.format' = 'json', 'value.format' = 'json')""")
flink.execute_sql(f"insert into made {query}").wait()
