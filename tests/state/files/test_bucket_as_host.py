"""A root whose bucket is in the host's name, at a real server for such names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from between import proxy_before
from house import HOUSE, SUPPORT
from object_store import BUCKET, ObjectStore, running_object_store

pytestmark = pytest.mark.slow

DOMAIN = "s3.test"
# A process of its own: its clients learn of the proxy as they begin.
PROGRAM = f"""
import sys
from pathlib import Path
from served import DELAYS, ROWS_OF_DELAYS, Platform
from kappa.base.section.storage import StorageSettings
from kappa.state.store import Store

storage = StorageSettings(endpoint="http://{DOMAIN}", path_style=False)
platform = Platform(Store("s3://{BUCKET}/kappa", storage=storage, local=Path(sys.argv[1])))
platform.serve("flights", {{DELAYS: ROWS_OF_DELAYS}})
print(platform.ask("select sum(flights) as n from delays").rows)
"""


def test_all_clients_find_the_bucket_by_its_host(object_store: ObjectStore, tmp_path: Path) -> None:
    del object_store  # it has the program built, and the credentials in the environment
    with (
        running_object_store(tmp_path / "s3", "--virtual-domain", DOMAIN) as running,
        proxy_before(running.storage) as between,
    ):
        # No name is looked up.
        proxy = between.storage.endpoint or ""
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "local")],
            env={
                **os.environ,
                **dict.fromkeys(("HTTP_PROXY", "http_proxy"), proxy),
                **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
                "PYTHONPATH": f"{HOUSE}{os.pathsep}{SUPPORT}",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    assert (ran.returncode, ran.stdout) == (0, "((12,),)\n"), ran.stderr
    # obstore's, delta-rs's and DuckDB's.
    assert {urlsplit(each.split()[1]).netloc for each in between.requests} == {f"{BUCKET}.{DOMAIN}"}
    for what in ("journal/", "_delta_log/", ".parquet"):
        assert any(what in each for each in between.requests)
