"""A full disk with a sink and a subscriber: nothing is sent in part, and all continue later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import ext4
import pytest
from changing import ChangingWorld
from sinking import (
    courier,
    cursor_of,
    ensure_has_all,
    ensure_sent_once,
    records_of,
    served_records,
    wait_for,
)

from kappa.base.errors import KappaError
from kappa.declare.sink import SinkBirth
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.serving.outlets.changes import follower_registry as hub_module
from kappa.serving.outlets.changes.follower_registry import ChangeHub, ChangeReader
from kappa.serving.outlets.sinks.sink_status import sink_statuses
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault]


@pytest.mark.parametrize("place", ["the same disk", "another disk"])
def test_a_sink_on_a_full_disk_says_so_and_goes_on_with_space(
    log: Log, broker: Broker, topic_name: str, tmp_path: Path, disk: ext4.Ext4, place: str
) -> None:
    root = disk.folder / "root"
    root.mkdir()
    output = (root if place == "the same disk" else tmp_path) / "output.log"
    sink = SinkBirth(topic_name, "totals")

    def seconds_behind() -> float | None:
        (status,) = sink_statuses(world.store, time.time())
        return status.behind_seconds

    with closing(ChangingWorld(Store(root), 7, (sink,), now=time.time())) as world:
        world.fold()
        with courier(tmp_path, root, broker.bootstrap_servers, log=output) as running:
            ensure_has_all(log, world.store, sink)
            wait_for(lambda: seconds_behind() == 0.0, "its state to say so")
            there = records_of(log, topic_name)
            os.kill(running.pid, signal.SIGSTOP)
            # What it has to send comes while it looks away: nothing can be folded on a full disk.
            wanted = served_records(world.store, "totals")
            while served_records(world.store, "totals") == wanted:
                world.fold()
            world.serve(1, asked=False)
            filler = ext4.fill(disk.folder)
            suspended = seconds_behind() or 0.0
            os.kill(running.pid, signal.SIGCONT)

            # Its state cannot be written: it is seen to be behind, and says why if its log can be.
            wait_for(lambda: (seconds_behind() or 0.0) > suspended + 5, "the sink to be behind")
            if place != "the same disk":
                wait_for(
                    lambda: "No space left on device" in output.read_text(encoding="utf-8"),
                    "the courier to say why",
                )
            assert records_of(log, topic_name) == there
            assert running.poll() is None
            filler.unlink()
            ensure_has_all(log, world.store, sink)
            world.fold()
            ensure_has_all(log, world.store, sink)
    assert len({*map(cursor_of, records_of(log, topic_name))}) >= 2
    ensure_sent_once(log, topic_name)


def test_a_reader_hears_of_a_full_disk_and_comes_back_to_its_cursor(
    disk: ext4.Ext4, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever is large enough for a file is.
    monkeypatch.setattr(hub_module, "_IN_MEMORY", 0)
    with closing(ChangingWorld(Store(disk.folder / "root"), 7, now=time.time())) as world:
        for _ in range(4):
            world.fold()
        hub = ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None)
        filler = ext4.fill(disk.folder)
        reader = ChangeReader("totals", None, None, lambda: None)
        with pytest.raises(KappaError, match=r"could not write .*: No space left on device"):
            hub.begin_reader(reader)
        filler.unlink()

        found = hub.begin_reader(reader)

        assert found is not None
        assert found.counts.insert == len(served_records(world.store, "totals"))
        hub.remove_reader(reader)
