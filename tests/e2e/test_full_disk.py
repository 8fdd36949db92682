"""A disk becomes full under a running platform: it continues to serve, and heals itself (I9)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.request import Request, urlopen

import ext4
import pytest
from e2e_shop import V1, order
from losing import Restarted
from object_store import CREDENTIALS, bucket_settings, running_object_store
from reading import assert_right
from testbed import platform
from victims import jobs_of

from kappa.base.errors import KappaError
from kappa.replay.status.run_records import served_at
from kappa.state.files.bucket import GIVE_SPACE

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault]
COUNT = "select count(*) as n from order_log"


def test_a_full_disk_is_told_queries_are_answered_and_all_goes_on_with_space(
    disk: ext4.Ext4,
) -> None:
    with platform(disk.folder / "shop", listen="127.0.0.1:0", shop=V1) as bed:
        bed.log.produce((order(number) for number in range(200)), "orders")
        bed.must("deploy", "--yes")
        supervisor, url = bed.supervisor_pid, served_at(bed.store)
        filler = ext4.fill(disk.folder)
        # Whoever writes now meets the full disk: the broker, the jobs, the supervisor.
        with contextlib.suppress(KappaError):
            bed.log.produce((order(number) for number in range(200, 400)), "orders")
        bed.wait(lambda: "the disk is full" in bed.kappa("status").out, "the status to tell it")
        # What the reserve gave up is used up too, by somebody else.
        second = ext4.fill(disk.folder / "shop")

        assert bed.rows(COUNT)[0]["n"] >= 200
        assert json.loads(bed.must("query", COUNT, "-o", "json").out)
        with urlopen(
            Request(f"{url}/api/v1/query", COUNT.encode(), {"Content-Type": "application/sql"}),
            timeout=60,
        ) as answered:
            assert json.loads(answered.read())["rows"][0]["n"] >= 200
        refused = bed.kappa("pause", "shop")
        assert refused.code in {0, 1}
        assert "could not write" in refused.err or refused.code == 0
        assert bed.supervisor_pid == supervisor

        filler.unlink()
        second.unlink()
        if refused.code == 0:
            bed.must("resume", "shop")
        bed.wait(lambda: "the disk is full" not in bed.kappa("status").out, "space")
        bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
        bed.log.produce((order(number) for number in range(400, 500)), "orders")
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        assert_right(bed, version=1)
        assert bed.supervisor_pid == supervisor


def test_a_full_disk_of_the_server_of_a_bucket_costs_time_alone(
    disk: ext4.Ext4, kafka: Restarted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries are answered, nothing is stored in part, and jobs continue once there is space."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store(disk.folder / "objects") as server:
        settings = bucket_settings(
            server.new_root(), server.storage, kafka.broker.bootstrap_servers
        )
        with platform(tmp_path / "shop", settings, listen="127.0.0.1:0", shop=V1) as bed:
            bed.log.produce((order(number) for number in range(200)), "orders")
            bed.must("deploy", "--yes")
            live = bed.live("shop")
            jobs = jobs_of(bed, live)
            filler = ext4.fill(disk.folder)
            bed.log.produce((order(number) for number in range(200, 400)), "orders")
            # The live job meets the full server, and says what the server says.
            bed.wait(lambda: jobs_of(bed, live) != jobs, "another job")
            assert bed.rows(COUNT)[0]["n"] >= 200
            refused = bed.kappa("pause", "shop")
            assert refused.code == 1, refused
            assert f"{server.storage.endpoint}: InsufficientStorage" in refused.err, refused
            assert GIVE_SPACE in refused.err, refused

            filler.unlink()
            bed.wait_until_folded("shop", bed.log.end(["orders"]))
            assert_right(bed, version=1)
            bed.must("scrub")
            bed.must("doctor")
