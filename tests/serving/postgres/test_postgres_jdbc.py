"""The law of the Postgres server with the real JDBC driver, in a JVM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fetched_jars import fetched_jars
from house import SUPPORT
from postgres_clients import PostgresThread
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.base.java.java import find_java
from kappa.state.store import Store

pytestmark = [pytest.mark.jvm, pytest.mark.long]

ROW = "row UA 3 1.50 2020-02-03 {1,2} 2020-01-01T00:00:00Z true 2020-01-02 03:04:05.0"


def test_jdbc_reads_metadata_rows_and_errors(tmp_path: Path) -> None:
    """The driver lists tables, binds values as text and binary, fetches in parts, and ends."""
    jars = fetched_jars("postgres-jars", SUPPORT / "postgres_jars.lock", {"driver": "jars"})
    if jars is None:
        pytest.skip("not run: the driver's jar cannot be fetched here")
    platform = Platform(Store(tmp_path / "root"))
    views = {"busy": "select carrier from delays where flights > 3"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views)
    with PostgresThread(platform.store) as server:
        found = subprocess.run(
            [
                *(find_java().command, "-Duser.timezone=America/New_York"),
                *("-cp", str(next(jars.rglob("*.jar"))), str(SUPPORT / "JdbcClient.java")),
                *(f"jdbc:postgresql://127.0.0.1:{server.port}/kappa", server.token or ""),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert found.returncode == 0, found.stderr
    # The driver quotes the values of an array that came in binary form.
    assert found.stdout.replace('"', "").splitlines() == [
        "product PostgreSQL",
        "schema flights",
        "schema information_schema",
        "schema pg_catalog",
        "schema public",
        "table delays TABLE",
        "table rejects TABLE",
        "table busy VIEW",
        "column carrier text",
        "column flights int8",
        "key false",
        "index false",
        "foreign false",
        "types true",
        *[ROW] * 4,
        "described int8",
        "sum 595",
        "refused 25006",
        "ended 57014",
    ]
