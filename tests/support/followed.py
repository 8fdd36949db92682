"""A database that Debezium follows in tests: the connector, and the expected rows of a table."""

from __future__ import annotations

from collections.abc import Mapping

from databases import RunningDatabase
from testbed import Testbed

_PATIENCE_SECONDS = 120.0


def connector(database: RunningDatabase, tables: str, more: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a connector that sends these tables of the publication `kappa`."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": tables,
        "plugin.name": "pgoutput",
        "publication.name": "kappa",
        "publication.autocreate.mode": "disabled",
        "slot.name": "kappa",
        "snapshot.mode": "initial",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.retention.ms": "-1",
        "topic.creation.default.message.timestamp.type": "LogAppendTime",
        **more,
    }


def ensure_rows(bed: Testbed, query: str, database: RunningDatabase, there: str) -> None:
    """Waits until a query returns the rows of the database; otherwise fails with both."""
    wanted = database.rows(there)
    bed.wait(
        lambda: bed.rows(query) == wanted,
        f"{wanted[:3]} of {len(wanted)} instead of {bed.rows(query)[:3]}",
        _PATIENCE_SECONDS,
    )
