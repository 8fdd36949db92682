"""A program that folds the log of `bucket_site` by large slices, whose rows are computed by Spark.

    python folding_in_bucket.py ENDPOINT ROOT LOCAL RECORDS SLICES

The program continues from the frontier that it finds, as a job does, and prints `folded` at the
end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bucket_site import ends_of, random_log, site

from kappa.base.errors import KappaError
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.base.sections import StorageSettings
from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot, end_process
from kappa.state.build import is_born, put_birth, read_birth
from kappa.state.store import Store


def main() -> None:
    endpoint, root, local, records, slices = sys.argv[1:]
    storage = StorageSettings(endpoint=endpoint)
    store = Store(root, storage=storage, local=Path(local) / "own")
    machine = boot(
        profile=Profile.CATCH_UP,
        name="folding",
        memory="1g",
        jars=ensure_jars(find_java(), for_bucket=True),
        local_dir=Path(local) / f"spark-{os.getpid()}",
        cores=2,
        storage=storage,
    )
    machine.session()
    log = random_log(MemoryLog(), int(records))
    with local_pipeline(site) as made:
        birth = read_birth(store, "b") if is_born(store, "b") else None
        built = Rehearsal(store, made, log, driver_rows=1, birth=birth)
        if birth is None:
            put_birth(store, built.birth)
        for end in ends_of(log, int(slices)):
            if not built.publisher.newest.offsets.covers(end):
                built.fold(end)
        built.close()
    machine.end()
    print("folded", flush=True)
    end_process(0)


if __name__ == "__main__":
    try:
        main()
    except KappaError as error:
        print(f"{type(error).__name__}: {error.message}", file=sys.stderr, flush=True)
        end_process(1)
