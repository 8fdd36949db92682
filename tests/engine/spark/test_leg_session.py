"""Laws of a leg in a spare: the warm JVM folds a few rows, and then ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_LEG = """
import sys, threading
import pyarrow as pa
from pathlib import Path
from kappa.base.settings import load_settings
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.leg_session import LegSession
from kappa.engine.spark.session import boot_ahead, end_process

project = Path(sys.argv[1])
settings = load_settings(project)
spare = boot_ahead(settings, profile=Profile.TAIL, local_dir=project / "spare")
if "warm" in sys.argv:
    assert spare.session().range(2).count() == 2


def decoder(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"is_there": ["kappa.kafka.bulk_reader" in sys.modules]})


with LegSession(settings, "b", Profile.CATCH_UP, project / "leg") as leg:
    leg.begin()
    first = leg.at_hand()
    assert first is leg.at_hand()
    assert first.range(3).count() == 3
    is_spares = spare.process.poll() is None
    assert is_spares == ("warm" in sys.argv), "it is used where it is warm, and ended elsewhere"
    own = leg()
    assert own is leg() is leg.at_hand()
    assert own.range(4).count() == 4
    assert (own.sparkContext is first.sparkContext) != is_spares
    assert spare.process.poll() is not None
    leg.begin_workers()
    leg.begin_workers()
    workers = [thread for thread in threading.enumerate() if thread.name == "workers"]
    assert len(workers) == 1, "they are started once"
    workers[0].join()
    there = own.range(0, 1, 1, 1).mapInArrow(decoder, "is_there boolean").collect()
    assert there[0].is_there, "the daemon has imported the decoder"
print("well", flush=True)
end_process(0)
"""


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize("spare", ["warm", "cold"])
def test_a_leg_begins_in_the_spares_jvm_if_it_is_warm_and_goes_on_in_its_own(
    tmp_path: Path, spare: str
) -> None:
    (tmp_path / "kappa.toml").touch()

    done = subprocess.run(
        [sys.executable, "-c", _LEG, str(tmp_path), spare],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=240,
    )

    assert done.stdout == "well\n", done.stderr
