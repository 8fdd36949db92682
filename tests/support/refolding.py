"""A program that folds the logs of many builds again, in one process with one Spark.

    python refolding.py PROJECT ROOT BOOTSTRAP SCRATCH BUILD=FOLDER...

Tests of random replays kill the program. Started again, it continues at the fold in which it was
killed. The builds are folded one after the other, as a proof does it
(kappa/engine/children/refold.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kappa.base.settings import load_settings
from kappa.engine.children.refold import refold
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot_for, end_process
from kappa.engine.spark.workers import tell_workers
from kappa.state.store import Store

running: list[SparkSession] = []


def main(project: str, root: str, bootstrap: str, scratch: str, *replays: str) -> None:
    settings = load_settings(Path(project), root=root)

    def session() -> SparkSession:
        if running:
            tell_workers(running[0])
        else:
            running.append(
                boot_for(
                    settings,
                    profile=Profile.CATCH_UP,
                    name="random replays",
                    local_dir=Path(scratch),
                ).session()
            )
        return running[0]

    for replay in replays:
        build, _, folder = replay.partition("=")
        refold(settings, bootstrap, build, Store(folder), session)


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process(0)
