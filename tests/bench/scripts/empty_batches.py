"""The cost of an empty micro-batch in a tail's session: `python empty_batches.py FOLDER`.

Prints the median of a hundred after thirty, in seconds from trigger to end by Spark's own report.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
from pathlib import Path

from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot, end_process
from kappa.java.jars import ensure_jars
from kappa.java.java import find_java

WARM, COUNTED = 30, 100

folder = Path(sys.argv[1])
spark = boot(
    profile=Profile.TAIL,
    name="empty",
    memory="1g",
    jars=ensure_jars(find_java()),
    local_dir=folder / "spark",
).session()
spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(2 * (WARM + COUNTED)))
enough = threading.Event()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream
query = (
    stream.foreachBatch(lambda _frame, number: enough.set() if number > WARM + COUNTED else None)
    .option("checkpointLocation", str(folder / "checkpoint"))
    .start()
)
while not enough.wait(1.0):
    if not query.isActive:
        raise SystemExit(f"the stream ended: {query.exception()}")
told = {each.batchId: each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress}
batches = [seconds for number, seconds in sorted(told.items()) if number > WARM][:COUNTED]
print(json.dumps({"batches": len(batches), "median": statistics.median(batches)}), flush=True)
end_process(0)
