"""A program that reads a topic with the tail's stream, once for each given access."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.engine.read.source import KafkaAccess, read_tail
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot, end_process
from kappa.kafka.java_options import secret_variables
from kappa.state.offsets import Offsets


def main(folder: Path) -> None:
    """Prints the number of records that each access has found."""
    given = json.load(sys.stdin)
    accesses = [KafkaAccess(servers, options) for servers, options in given["accesses"]]
    secrets: dict[str, str] = {}
    for access in accesses:
        secrets |= secret_variables(access.options)
    spark = boot(
        profile=Profile.TAIL,
        name="tail once",
        memory="1g",
        jars=ensure_jars(find_java()),
        local_dir=folder,
        secrets=secrets,
    ).session()
    counts = []
    start = Offsets({given["topic"]: {0: 0}})
    for number, access in enumerate(accesses):
        found: list[int] = []

        def count(rows: DataFrame, _batch: int, found: list[int] = found) -> None:
            found.append(rows.count())

        frame = read_tail(spark, access, start, [given["topic"]], at_most=1_000)
        # Nothing that Spark shows of the plan may have a secret.
        print(frame._jdf.queryExecution().toString())
        frame.writeStream.foreachBatch(count).trigger(availableNow=True).option(
            "checkpointLocation", str(folder / f"checkpoint-{number}")
        ).start().awaitTermination()
        counts.append(sum(found))
    print(json.dumps(counts))
    end_process(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
