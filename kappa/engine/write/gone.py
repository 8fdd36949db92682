"""The deletion of expired rows from the files of a build's tables.

Readers leave out rows that are gone by the log's clock, so no reader sees the deletion. Frontiers
that are still needed name older versions, which still have the deleted rows. No accepted
contribution reaches a gone row (kappa/state/log_clock.py), so a folded row is never made anew. The
newest row of a key protects the table from older records. So the row stays until no older record
can follow: no contribution waits beside the table, and each partition of its topic is past the row.
A view's hidden rows protect the table from waiting contributions, and from nothing else.
"""

from __future__ import annotations

from kappa.base.sql import quoted
from kappa.declare.options import DELETED
from kappa.engine.write.commit import TableWriter
from kappa.state.build import Birth
from kappa.state.files.duckdb_access import open_over_files
from kappa.state.frontier import Frontier
from kappa.state.log_clock import log_clock, topic_clock
from kappa.state.table import TableBirth
from kappa.tables.parquet import parquet_sql
from kappa.tables.versions import files
from kappa.tables.views.served import least_kept

# Deleting rewrites the files that mix gone rows with others: worth it from this part on.
_SHARE = 10


def ensure_gone_deleted(birth: Birth, writer: TableWriter, frontier: Frontier) -> None:
    """Deletes a table's rows that are gone at the newest frontier.

    Deletes only if at least a tenth of the rows is gone. The table must be at rest, and at that
    frontier.
    """
    table, stored = writer.birth, writer.stored
    is_mergeable = table.latest is not None or table.view is not None
    if is_mergeable and writer.recent is not None and writer.recent.holds:
        return
    condition = _condition(birth, table, frontier)
    if condition is None:
        return
    rows = parquet_sql(table.columns, files(stored.path, stored.version, None))
    with open_over_files() as duck:
        # Times are compared as in DataFusion, which deletes the rows.
        duck.execute("create macro arrow_cast(micros, kind) as make_timestamptz(micros)")
        gone, every = duck.execute(
            f"select count(*) filter ({condition}), count(*) from ({rows})"
        ).fetchone() or (0, 0)
    if gone and gone * _SHARE >= every:
        stored.delete(condition, stored.mark())


def _condition(birth: Birth, table: TableBirth, frontier: Frontier) -> str | None:
    """Returns the condition for rows that can be deleted, or None if there are none."""
    if table.view is not None:
        return quoted(DELETED)
    least = least_kept(table, log_clock(birth, frontier.log_time))
    if table.expiry is None or least is None:
        return None
    time = f"""arrow_cast({least}, 'Timestamp(Microsecond, Some("UTC"))')"""
    gone = f"{quoted(table.expiry.column)} < {time}"
    if table.latest is None:
        return gone
    passed = topic_clock(birth, table.latest, frontier.log_time)
    return None if passed is None else f"{gone} and _log_time < {passed}"
