"""A change set: the net difference of a served table between two snapshots.

A change set can be read until its reader is closed. The reader is a separate instance of DuckDB,
which can spill to disk. A filter is applied when the rows are read, so many readers may share a
change set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kappa.base.sql import quoted, text
from kappa.declare.values.exact_sql import DuckType, json_sql
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.table_snapshot import Point
from kappa.serving.query.reader.reader import Reader
from kappa.state.offsets import Offsets

# The relation of all changes, in the reader of an open change set.
CHANGES = "_changes"
# A key of a single column of these types is text, as Kappa reads the key of a topic.
_KEY_TYPES = frozenset({"varchar", "tinyint", "smallint", "integer", "bigint"})


class ChangeKind(StrEnum):
    """The kind of a change set.

    `snapshot` is a reader's first change set. With `reset`, the reader starts over, for example
    because the files at its cursor are no longer kept. Both contain all rows of the table, and
    replace all earlier changes. The other kinds name the cause of the changes.
    """

    SNAPSHOT = "snapshot"
    RESET = "reset"
    SLICE = "slice"
    PROMOTE = "promote"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The numbers of rows that a change set inserts, updates and deletes."""

    insert: int = 0
    update: int = 0
    delete: int = 0

    @property
    def row_count(self) -> int:
        """Returns the number of rows that the change set changes."""
        return self.insert + self.update + self.delete

    def __str__(self) -> str:
        named = ("inserts", self.insert), ("updates", self.update), ("deletes", self.delete)
        return ", ".join(f"{count:,} {name}" for name, count in named if count) or "no rows"


@dataclass(frozen=True, slots=True)
class ChangeSetHead:
    """The head of a change set: its cause, its two cursors and its columns.

    The change set leads from the cursor `since` to `cursor`. `columns` contains the name and
    Spark's simple type of each column. `keys` are the columns that identify a row, or empty if the
    table has no keys.
    """

    kind: ChangeKind
    table: str
    pipeline: str
    since: Cursor | None
    cursor: Cursor
    offsets: Offsets
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    @property
    def starts_over(self) -> bool:
        """Returns True if the change set is the whole table and replaces all earlier changes."""
        return self.kind in {ChangeKind.SNAPSHOT, ChangeKind.RESET}

    def as_document(self, chosen: Filter | None = None) -> dict[str, Any]:
        """Returns the head as a JSON document.

        If a filter is given, the document contains only the columns that the filter selects.
        """
        columns = self.columns if chosen is None else chosen.shown_columns(self.columns, self.keys)
        return {
            "kind": str(self.kind),
            "table": self.table,
            "pipeline": self.pipeline,
            "generation": self.cursor.generation,
            "build": self.cursor.build,
            "frontier": self.cursor.frontier,
            "offsets": self.offsets.plain(),
            "keys": list(self.keys),
            "columns": [{"name": name, "type": kind} for name, kind in columns],
            "since": None if self.since is None else str(self.since),
            "cursor": str(self.cursor),
        }


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that was inserted, updated or deleted.

    If the table has no keys, `times` equal rows were inserted or deleted.
    """

    op: str
    times: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class ChangeSet:
    """A change set whose rows can be read until its DuckDB reader is closed.

    The changes are ordered: first deletes, then updates, then inserts, each ordered by key.
    """

    def __init__(
        self,
        head: ChangeSetHead,
        point: Point,
        reader: Reader,
        before_columns: tuple[tuple[str, str], ...],
    ) -> None:
        """Creates a change set from a DuckDB reader, in which a table contains all changes.

        The caller must close `reader`. `point` is the state of the table after the changes, and
        `before_columns` are the columns of the table before the changes.
        """
        self.head = head
        # The point that the change set leads to.
        self.point = point
        self._reader = reader
        # Before a promote, rows may have other columns than after the promote.
        self._before_columns = before_columns

    def counts(self, chosen: Filter | None = None) -> ChangeCounts:
        """Counts the changed rows, by kind of change, after applying a filter."""
        found = self._reader.rows(
            f"select op, sum(times)::bigint from ({self._filtered_sql(chosen)}) group by op"
        ).rows
        return ChangeCounts(**{str(op): int(count) for op, count in found})

    def is_empty(self) -> bool:
        """Returns True if no row changes."""
        return not self._reader.rows(f"select 1 from {CHANGES} limit 1").rows

    def rows(self, chosen: Filter | None = None) -> Iterator[RowChange]:
        """Yields the changes that a filter selects, with Python values."""
        for op, times, before, after in self._reader.each_row(self._ordered_sql(chosen)):
            yield RowChange(op, times, before, after)

    def json_lines(self, chosen: Filter | None = None) -> Iterator[str]:
        """Yields each change that a filter selects, as a JSON object without a line end."""
        changes = self._filtered_sql(chosen)
        before, after = self._reader.column_types(f"select before, after from ({changes})")
        parts = ["'op', op"]
        if not self.head.keys:
            parts.append("'times', times")
        parts += [
            f"{text(name)}, {json_sql(name, kind, name)}"
            for name, kind in (("before", before), ("after", after))
        ]
        line = f"json_object({', '.join(parts)})::varchar"
        for (written,) in self._reader.each_row(
            f"select {line} from ({self._ordered_sql(chosen)})"
        ):
            yield written

    def key_and_row_messages(
        self, chosen: Filter | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Yields the key and the new row of each change, as a sink writes them to its topic.

        The row is JSON, or None if the row is deleted. The table must have keys. If the key is a
        single text or whole number, it is plain text, as Kappa reads the key of a topic. Any other
        key is a JSON object.
        """
        # Field by field: of a promote, both rows may have other columns.
        fields = (
            f"{quoted(key)} := coalesce(after.{quoted(key)}, before.{quoted(key)})"
            for key in self.head.keys
        )
        row = f"struct_pack({', '.join(fields)})"
        kinds = self._reader.column_types(
            f"select {row}, after from ({self._filtered_sql(chosen)})"
        )
        value = f"case when after is not null then {json_sql('after', kinds[1], 'after')} end"
        yield from self._reader.each_row(
            f"select {key_sql('key', kinds[0])}, {value}::varchar from "
            f"(select {row} as key, after from ({self._ordered_sql(chosen)}))"
        )

    def merged_rows(self, gone: str) -> Any:
        """Returns Arrow batches with one row for each key whose row has changed.

        It is the key's new row or, if the row was deleted, the old row. The boolean column named
        `gone` is true for a deleted row. The table must have keys, and the same columns before and
        after the changes.
        """
        return self._reader.arrow_batches(
            f"select unnest(coalesce(after, before)), after is null as {quoted(gone)} "
            f"from {CHANGES}"
        )

    def inserted_rows(self) -> Any:
        """Returns Arrow batches of the inserted rows.

        A row that was inserted n times occurs n times.
        """
        return self._reader.arrow_batches(
            f"select unnest(after) from (select after, unnest(range(times)) from {CHANGES} "
            "where op = 'insert')"
        )

    def _shown_columns(
        self, columns: tuple[tuple[str, str], ...], chosen: Filter | None
    ) -> tuple[tuple[str, str], ...]:
        return columns if chosen is None else chosen.shown_columns(columns, self.head.keys)

    def _filtered_sql(self, chosen: Filter | None) -> str:
        """Returns the query for the changes that a filter selects."""
        if chosen is None or chosen.is_all:
            return f"select * from {CHANGES}"
        return chosen.filtered_sql(
            CHANGES,
            self._shown_columns(self._before_columns, chosen),
            self._shown_columns(self.head.columns, chosen),
        )

    def _ordered_sql(self, chosen: Filter | None) -> str:
        keys = "".join(f", coalesce(after, before).{quoted(key)}" for key in self.head.keys)
        by = keys or ", coalesce(after, before)"
        if self.head.keys and self._before_columns != self.head.columns:
            by = "".join(
                f", coalesce(after.{quoted(key)}, before.{quoted(key)})" for key in self.head.keys
            )
        return (
            f"select * from ({self._filtered_sql(chosen)}) order by op = 'insert', op = "
            f"'update'{by}"
        )


def key_sql(row: str, kind: DuckType) -> str:
    """Returns the SQL expression for the key of a sink's record.

    `row` is a struct with the fields of the key, and `kind` is the struct's type. Different keys
    must have different texts: therefore null, and a text that looks like a JSON object, are written
    as a JSON object.
    """
    whole = f"{json_sql(row, kind, row)}::varchar"
    ((name, only), *more) = kind.children
    if more or str(only.id) not in _KEY_TYPES:
        return whole
    one = f"struct_extract({row}, {text(name)})::varchar"
    return f"case when {one} is null or starts_with({one}, '{{') then {whole} else {one} end"
