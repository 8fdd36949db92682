"""A latest table, the newest value per Kafka key of a topic: its columns, its merge. Pure.

engine/fold/latest.py finds the newest records of a slice.
"""

from __future__ import annotations

from kappa.base.errors import DeclarationError
from kappa.declare.options import DELETED
from kappa.declare.table import Table
from kappa.folds.fold import Quote
from kappa.folds.order import ORDER_COLUMNS, later
from kappa.state.table import TableBirth

# The order of a latest row (law 4) and its tombstone's mark.
LATEST_COLUMNS = (*ORDER_COLUMNS, (DELETED, "boolean"))


def latest_birth(table: Table) -> TableBirth:
    """Returns a latest table as a build makes it. Raises DeclarationError if it has no key."""
    topic = table.latest
    if topic is None or topic.key is None:
        raise DeclarationError(
            f"{table.source}: table {table.name} is the latest of a topic without a key"
        )
    columns = tuple((column.name, str(column.type)) for column in topic.columns)
    return TableBirth(
        table.name,
        (*columns, *LATEST_COLUMNS),
        keys=(topic.key,),
        latest=topic.name,
        checks=table.checks,
        thresholds=table.thresholds,
    )


def is_newer(quote: Quote) -> str:
    """Returns the condition that a contribution (`s`) is later in the log than a row (`t`)."""
    names = [quote(name) for name, _ in ORDER_COLUMNS]
    return later([f"s.{name}" for name in names], [f"t.{name}" for name in names])
