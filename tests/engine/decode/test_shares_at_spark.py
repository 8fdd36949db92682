"""All cores decode one partition of a real broker, with the same result as one task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer as KafkaProducer

from kappa.declare.topic import Topic
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm]

# It prints, for each slice, how many tasks have decoded it and whether they gave what one gives.
PROGRAM = """
import json, sys
from pathlib import Path
from kappa.declare.topic import Topic
from kappa.records.decode import to_files
from kappa.records.decode.decode import decode_table
from kappa.records.decode.outcome import counts_in, decoded_columns
from kappa.engine.slice_in_spark import SliceAtSpark
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

bootstrap, name, event, ends, folder = sys.argv[1:]
to_files.LEAST_OFFSETS = 5
topic = Topic(name, event=event, partitions=1)
source = LogSource(KafkaAccess(bootstrap, {}), Log(bootstrap))
machine = boot(
    profile=Profile.CATCH_UP, name="shares", memory="1g", jars=ensure_jars(find_java()),
    local_dir=Path(folder) / "spark", cores=4,
)
spark = machine.session()
tasks, clock, start = spark.sparkContext.statusTracker(), {}, 0
for number, end in enumerate(json.loads(ends)):
    piece = Slice(1, number, Offsets({name: {0: start}}), Offsets({name: {0: end}}))
    wanted = decode_table(source.read_records(piece), topic, clock, {})
    witness = source.witnesses()
    spark.sparkContext.setJobGroup(str(number), "a slice")
    decoded = SliceAtSpark(
        spark, [topic], piece, source.ranges, {name: clock}, {}, Path(folder) / "decoded",
        lambda *_: {}, {},
    )
    # What the tracker knows comes by a bus of its own.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    (job,) = tasks.getJobIdsForGroup(str(number))
    (stage,) = tasks.getJobInfo(job).stageIds
    found = decoded._frames[name].toArrow().sort_by("_offset").cast(wanted.schema)
    print(json.dumps({
        "tasks": tasks.getStageInfo(stage).numCompletedTasks,
        "files": len(list((Path(folder) / "decoded" / "0").glob("*.parquet"))),
        "records": wanted.num_rows,
        "rows": found.to_pylist() == wanted.to_pylist(),
        "counts": decoded.counts() == {name: counts_in(wanted)},
        "witnesses": source.witnesses() == witness,
        "back": sorted(times := wanted["_timestamp"].to_pylist()) != times,
    }))
    decoded.close()
    if wanted.num_rows:
        clock = {0: counts_in(wanted)[0].log_time}
    start = end
source.close()
machine.end()
"""
EVENT = "id int not null, name string"


def produced(log: Log, name: str, *, until: int) -> int:
    """Fills a topic with records, transactions and aborted transactions; returns its end."""
    log.create(Topic(name, event=EVENT, partitions=1))
    producer = KafkaProducer(
        {"bootstrap.servers": log.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    number, began = 0, 1_700_000_000_000
    while number < until:
        producer.begin_transaction()
        for _ in range(number % 7 + 1):
            value = b"{" if number % 11 == 0 else b'{"id": %d, "name": "a"}' % number
            # Now and then far ahead: whatever follows is of that log time.
            ahead = 1_000_000 if number % 30 == 20 else -50 * (number % 13)
            producer.produce(name, value, timestamp=began + 100 * number + ahead)
            number += 1
        producer.flush(30)
        producer.abort_transaction(30) if number % 4 == 0 else producer.commit_transaction(30)
    log.produce([ProducedRecord(b'{"id": 0}', timestamp_ms=began)], name)
    return log.end([name]).at(name, 0)


def test_one_partition_is_decoded_by_four_cores(log: Log, topic_name: str, tmp_path: Path) -> None:
    """Four cores decode a partition as one does, even if slices end among aborted records.

    Shares of tasks may also end among aborted records and markers.
    """
    end = produced(log, topic_name, until=160)
    ends = [*range(40, end, 55), end]

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            log.bootstrap_servers,
            topic_name,
            EVENT,
            json.dumps(ends),
            str(tmp_path),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )

    slices = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(slices) == len(ends)
    for each in slices[:-1]:
        assert (each["tasks"], each["files"]) == (4, 4)
    for each in slices:
        assert each["rows"]
        assert each["counts"]
        assert each["witnesses"]
    assert sum(each["records"] for each in slices) < end
    assert any(each["back"] for each in slices)
