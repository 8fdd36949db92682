"""The commits that Spark makes: appended rows, and merged contributions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta.tables import DeltaTable as SparkTable
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import Broken
from kappa.base.sql import spark_quote
from kappa.engine.function.failure import unfit_in
from kappa.engine.function.trouble import SPARK_ERRORS
from kappa.engine.spark.s3a import spark_address
from kappa.state.mark import Mark
from kappa.state.table import TableBirth
from kappa.tables.delta import OVERFLOW_HINT, Guard
from kappa.tables.merge import merge_for

_APPLICATION = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def spark_append(rows: DataFrame, path: str, mark: Mark, guard: Guard) -> None:
    """Appends rows to the table at `path`."""
    options = {
        "txnAppId": guard.application,
        "txnVersion": str(guard.number),
        "userMetadata": mark.to_json(),
    }
    rows.write.format("delta").mode("append").options(**options).save(spark_address(path))


def spark_merge(rows: DataFrame, table: TableBirth, path: str, mark: Mark, guard: Guard) -> None:
    """Merges rows into the table at `path`. Raises Broken if a value does not fit."""
    session: SparkSession = rows.sparkSession
    how = merge_for(table, spark_quote)
    stored = SparkTable.forPath(session, spark_address(path))
    into = stored.alias("t").merge(rows.alias("s"), how.match)
    update, insert = dict(how.update), dict(how.insert)
    # Delta's stubs want an invariant dict.
    matched = into.whenMatchedUpdate(how.update_when, set=update)  # type: ignore[arg-type]
    settings = {
        _APPLICATION: guard.application,
        _NUMBER: str(guard.number),
        _METADATA: mark.to_json(),
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        with folding(table):
            matched.whenNotMatchedInsert(values=insert).execute()  # type: ignore[arg-type]  # as above
    finally:
        # If the settings stayed set, Delta would skip the session's next write.
        for name in settings:
            session.conf.unset(name)


@contextmanager
def folding(table: TableBirth) -> Iterator[None]:
    """Reports a value that does not fit as the fold's error, not as a record's fault."""
    try:
        yield
    except SPARK_ERRORS as error:
        unfit = unfit_in(str(error))
        if unfit is None:
            raise
        raise Broken(
            f"contributions could not be folded into table {table.name}: {unfit}",
            hint=OVERFLOW_HINT,
        ) from error
