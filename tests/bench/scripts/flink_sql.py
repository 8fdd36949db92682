"""PyFlink SQL, batch: a bounded Kafka table, a group by, JSON files.

    python flink_sql.py BOOTSTRAP TOPIC FOLDER CONNECTOR_JAR CORES

Leaves `FOLDER/totals/` (lines of JSON). Options are those that were found to be its fastest here (object reuse, large fetches).
https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/kafka/
"""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment

bootstrap, topic, folder, jar, cores = sys.argv[1:6]
flink = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
options = {
    "pipeline.jars": f"file://{jar}",
    "parallelism.default": cores,
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.memory.network.max": "256m",
    "pipeline.object-reuse": "true",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
for name, value in options.items():
    flink.get_config().set(name, value)
# Only what is used of the seven fields: Flink's JSON format decodes no others then.
flink.execute_sql(f"""
    create table bids (bidder bigint, price bigint) with (
        'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink',
        'properties.max.poll.records' = '20000', 'properties.max.partition.fetch.bytes' = '16777216',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json')""")
flink.execute_sql(f"""
    create table totals (bidder bigint, bids bigint, total bigint, lowest bigint, highest bigint)
    with ('connector' = 'filesystem', 'path' = 'file://{folder}/totals', 'format' = 'json')""")
flink.execute_sql("insert into totals select bidder, count(*), sum(price), min(price), max(price) from bids group by bidder").wait()
