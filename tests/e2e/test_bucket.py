"""The platform with its root in a bucket of a real S3 server, and nothing else that lasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_shop import V1, V2, item, order
from losing import Restarted
from object_store import ObjectStore
from reading import assert_right, readers
from testbed import Testbed, platform

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1200)]

SETTINGS = """
root = "{root}"
[storage]
endpoint = "{endpoint}"
[engine]
maintenance_seconds = 5
[kafka]
bootstrap_servers = "{bootstrap_servers}"
"""


@pytest.fixture(scope="module")
def bed(
    kafka: Restarted, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("bucket") / "shop"
    settings = SETTINGS.format(
        root=object_store.new_root(),
        endpoint=object_store.storage.endpoint,
        bootstrap_servers=kafka.broker.bootstrap_servers,
    )
    with platform(folder, settings, shop=V1) as bed:
        bed.log.produce((order(number) for number in range(2_000)), "orders")
        bed.log.produce((item(number % 9, f"title {number}") for number in range(40)), "items")
        bed.must("deploy", "--yes")
        yield bed


def test_a_switch_and_an_undo_beside_readers(bed: Testbed, tmp_path) -> None:
    assert_right(bed, version=1)
    bed.declare("shop", V2)
    with readers(bed, 2, rest_seconds=1.0, script=tmp_path / "reader.py") as seen:
        bed.must("replay", "shop", "--yes")
        bed.log.produce((order(number) for number in range(100)), "orders")
        bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
        assert_right(bed, version=2)
        bed.must("undo", "--yes")
        assert_right(bed, version=1)
    assert [fault for each in seen for fault in each.faults] == []
