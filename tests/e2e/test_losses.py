"""The page of losses is right: what is lost and doubled if a broker or a process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_losses import AT_MOST, crash_all
from losses import PAGE, WAYS, Measured, cells_of, ensure_told, measure
from three_brokers import ThreeBrokers

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(
    jars: Jars, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThreeBrokers]:
    running = ThreeBrokers(tmp_path_factory.mktemp("brokers"), jars, java)
    try:
        yield running
    finally:
        running.close()


def test_a_killed_leader_loses_what_the_page_says(cluster: ThreeBrokers) -> None:
    measured: list[Measured] = []
    for way in WAYS:
        measured.append(measure(cluster, way))
        print(measured[-1].row)

    ensure_told(PAGE.read_text(encoding="utf-8"), measured)
    # No reader saw a record that was lost, but where a replica that lacks records may lead.
    assert [bool(each.lost_ends) for each in measured] == [each.is_careless for each in WAYS]


def test_a_killed_process_keeps_its_guarantee(cluster: ThreeBrokers, tmp_path: Path) -> None:
    cluster.wait_until_whole()
    crashed = crash_all(tmp_path, cluster.bootstrap_servers)
    for each in crashed:
        print(each.row)
        each.ensure_kept()

    told = [cells[:3] for cells in cells_of(PAGE.read_text(encoding="utf-8"), "crashes")]
    assert told == [[each.guarantee, each.way, each.killed] for each in crashed]
    # The collector was away for a while: else nothing was tried.
    assert [each.lost > 0 for each in crashed if each.guarantee == AT_MOST] == [True, True]
