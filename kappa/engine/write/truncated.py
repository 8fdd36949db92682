"""The latest rows of a topic's slice, also where its source's table was truncated in it."""

from __future__ import annotations

from kappa.base.duck import open_exact
from kappa.base.errors import Broken
from kappa.declare.topic import Topic
from kappa.engine.fold.latest import emptied_sql
from kappa.engine.function.decoded import Decoded
from kappa.engine.read.rows import Rows, RowsInFiles
from kappa.engine.write.commit import TableWriter


def latest_rows(decoded: Decoded, topic: Topic, writer: TableWriter) -> Rows:
    """Returns what a slice contributes to the table of a topic's latest rows.

    A truncation hides each key that the table has before the slice, or that the slice has before
    it. Raises Broken if nobody knows which changes were made before.
    """
    rows = decoded.latest(topic, writer.birth)
    truncated = decoded.truncated(topic)
    if truncated is None:
        return rows
    _, partition, offset = truncated
    if topic.partitions > 1:
        raise Broken(
            f"record {topic.name}:{partition}:{offset} truncates its source's table, and the topic "
            f"has {topic.partitions} partitions: nobody knows which changes of the others were "
            f"made before, so table {writer.birth.name} cannot follow",
            hint="send the table's changes into a new topic of one partition "
            "(topic.creation.default.partitions=1), and declare that one",
        )
    stored = writer.stored_sql(writer.birth.keys)
    if isinstance(rows, RowsInFiles):
        return RowsInFiles(emptied_sql(writer.birth, rows.sql, stored, truncated), rows.spark)
    with open_exact() as duck:
        duck.register("_of_slice", rows)
        sql = emptied_sql(writer.birth, "select * from _of_slice", stored, truncated)
        return duck.execute(sql).to_arrow_table()
