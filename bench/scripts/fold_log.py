"""Runs a build's job until the build has folded its topics up to given offsets.

    python fold_log.py OFFSETS --project PROJECT --root ROOT --build BUILD [the job's other options]

OFFSETS is JSON: `{topic: {partition: next offset}}`. A job that has caught up with a short topic
continues as the build's tail. This program then stops the job by SIGTERM, as `kappa down` does.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from kappa.base.settings import load_settings
from kappa.engine.job.job import main
from kappa.engine.spark.session import end_process
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import open_store

_LOOK_SECONDS = 0.05

parser = argparse.ArgumentParser()
parser.add_argument("offsets")
for name in ("project", "root", "build"):
    parser.add_argument(f"--{name}", required=True)
given, _ = parser.parse_known_args()
end = Offsets.parse(given.offsets)
frontiers = Frontiers(open_store(load_settings(Path(given.project), root=given.root)), given.build)
has_ended = threading.Event()


def stop_at_end() -> None:
    while not has_ended.wait(_LOOK_SECONDS):
        newest = frontiers.newest()
        if newest is not None and newest.offsets.covers(end):
            os.kill(os.getpid(), signal.SIGTERM)
            return


threading.Thread(target=stop_at_end, daemon=True).start()
code = main(sys.argv[2:])
has_ended.set()
end_process(code)
