"""The probe of the freshness cell: repeats a query, and writes each answer's time and offsets.

    python probe.py PROJECT PIPELINE OUT SQL

Writes a line of JSON per answer to the file OUT, `{"at": seconds, "offsets": {...}}`. The offsets
are those of the pipeline's serving build. `at` is in seconds of the clock that all processes of a
machine share. The probe exits when its standard input ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from demo.processes.end_of_input import stop_at_end_of_input
from kappa.base.settings import load_settings
from kappa.serving.query.query import answer_query
from kappa.state.store import open_store

# Two looks at the table overlap in no way, and the probe leaves the cores to what it measures.
PAUSE_SECONDS = 0.03

project, pipeline, out, sql = sys.argv[1:5]
store, stop = open_store(load_settings(Path(project))), stop_at_end_of_input()
with Path(out).open("w", encoding="utf-8") as lines:
    while not stop.wait(PAUSE_SECONDS):
        found = answer_query(store, sql)
        offsets = found.offsets[found.snapshot.serving[pipeline]].plain()
        # Whoever started it reads along.
        lines.write(json.dumps({"at": time.monotonic(), "offsets": offsets}) + "\n")
        lines.flush()
