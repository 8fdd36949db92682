"""A root whose bucket is in the host's name, at a real server for such names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from between import Between, proxy_before
from object_store import BUCKET, ObjectStore, running_object_store
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.base.section.storage import StorageSettings
from kappa.state.store import Store

DOMAIN = "s3.test"


@pytest.fixture
def by_name(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Between]:
    """A server of that domain, reached by a proxy: no name is looked up."""
    del object_store  # it has the program built, and the credentials in the environment
    with (
        running_object_store(tmp_path / "s3", "--virtual-domain", DOMAIN) as running,
        proxy_before(running.storage) as between,
    ):
        assert between.storage.endpoint is not None
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, between.storage.endpoint)
        yield between


def test_all_clients_find_the_bucket_by_its_host(by_name, tmp_path):
    storage = StorageSettings(endpoint=f"http://{DOMAIN}", path_style=False)
    platform = Platform(Store(f"s3://{BUCKET}/kappa", storage=storage, local=tmp_path / "local"))

    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})

    answer = platform.ask("select * from delays order by all")
    assert answer.rows == (("UA", 3), ("ÅÄ", 4), (None, 5))
    # obstore's, delta-rs's and DuckDB's.
    assert {urlsplit(each.split()[1]).netloc for each in by_name.requests} == {f"{BUCKET}.{DOMAIN}"}
    for what in ("journal/", "_delta_log/", ".parquet"):
        assert any(what in each for each in by_name.requests)
