"""Measures the steps of a tail's start, one after the other: `python start_parts.py FOLDER`.

Prints the seconds of each step as JSON: Python's imports, the search for Java and the jars, the
start of the Spark session (with the jars on the class path of its JVM), and the first and the
second micro-batch of an empty stream.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

begun = time.monotonic()

import deltalake  # noqa: E402, F401  # as a job does

import kappa.engine.job.job_run  # noqa: E402, F401
from kappa.base.java.jars import ensure_jars  # noqa: E402
from kappa.base.java.java import find_java  # noqa: E402
from kappa.engine.spark.jvm import Profile  # noqa: E402
from kappa.engine.spark.session import boot, end_process  # noqa: E402

imported = time.monotonic()
folder = Path(sys.argv[1])
jars = ensure_jars(find_java())
looked = time.monotonic()
spark = boot(
    profile=Profile.TAIL, name="parts", memory="1g", jars=jars, local_dir=folder / "spark"
).session()
session = time.monotonic()
ends: list[float] = []
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream
query = (
    stream.foreachBatch(lambda _frame, _number: ends.append(time.monotonic()))
    .option("checkpointLocation", str(folder / "checkpoint"))
    .start()
)
while len(ends) < 2:
    time.sleep(0.005)
    assert query.isActive, query.exception()
print(
    json.dumps(
        {
            "imports": imported - begun,
            "Java and jars looked at": looked - imported,
            "Spark's session": session - looked,
            "a stream's first, empty micro-batch": ends[0] - session,
            "its second": ends[1] - ends[0],
        }
    ),
    flush=True,
)
end_process(0)
