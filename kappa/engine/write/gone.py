"""The deletion of rows that are gone by the log's clock, from the files of a build's tables.

Readers leave such rows out already, so nobody sees the deletion; frontiers that are still needed
name older versions, which have the rows that were there then. No accepted contribution reaches a
row that is gone (kappa/state/log_clock.py), so a folded one is never made anew. The newest row of a
key stands in the way of older records, so it stays until none can follow: no contribution waits
beside the table, and each partition of its topic is past the row.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kappa.base.duck import open_connection
from kappa.base.sql import quoted
from kappa.engine.write.commit import TableWriter
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.log_clock import log_clock, topic_clock
from kappa.tables.parquet import parquet_sql
from kappa.tables.versions import files
from kappa.views.served import least_kept

# Deleting rewrites the files in which gone rows are among others: worth it from this part on.
_SHARE = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ensure_gone_deleted(birth: Birth, writer: TableWriter, frontier: Frontier) -> None:
    """Deletes a table's rows that are gone at the newest frontier, if they are a tenth of it.

    The table must be at rest, and at that frontier.
    """
    table, stored = writer.birth, writer.stored
    least = least_kept(table, log_clock(birth, frontier.log_time))
    if table.expiry is None or least is None:
        return
    past = ""
    if table.latest is not None:
        passed = topic_clock(birth, table.latest, frontier.log_time)
        if passed is None or (writer.recent is not None and writer.recent.holds):
            return
        past = f" and _log_time < {passed}"
    rows = parquet_sql(table.columns, files(stored.path, stored.version))
    column, micros = quoted(table.expiry.column), (least - _EPOCH) // timedelta(microseconds=1)
    with open_connection() as duck:
        gone, every = duck.execute(
            f"select count(*) filter (epoch_us({column}) < {micros}{past}), count(*) from ({rows})"
        ).fetchone() or (0, 0)
    if gone and gone * _SHARE >= every:
        # As DataFusion has it, which compares times of one type alone.
        time = f"""arrow_cast({micros}, 'Timestamp(Microsecond, Some("UTC"))')"""
        stored.delete(f"{column} < {time}{past}", stored.mark())
