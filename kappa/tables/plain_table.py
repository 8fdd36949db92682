"""A plain table: a copy of the rows of a served table, for any reader of Delta.

A plain table has no hidden rows, no hidden columns and no separate recent rows. Only one process
writes a plain table. Each commit contains a note with the frontier whose rows were copied. So after
a writer was killed, its successor can read from the table up to which frontier the rows were
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import TableNotFoundError
from deltalake.writer import write_deltalake
from msgspec import Struct

from kappa.base.errors import Damaged, KappaError
from kappa.base.failpoint import failpoint
from kappa.base.sql import quoted
from kappa.state.files.address import delta_options, entries_at
from kappa.state.store import Store
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import (
    LOG_FILE,
    LOG_FOLDER,
    NO_HOOKS,
    PROPERTIES,
    attempted,
    commit_properties,
    open_newest,
    url_of,
)
from kappa.tables.file_list import FileList
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import commit_info, files_of

if TYPE_CHECKING:
    import pyarrow as pa

# The column of `PlainTable.merge` that says that a row goes.
GONE = "_gone"
# Changes of more rows are read once, one batch after the other, and not kept to prune files.
_FEW_ROWS = 100_000
# So many files below the size are joined.
_MOST_SMALL, _SMALL_BYTES, _JOINED_BYTES = 24, 16 << 20, 64 << 20
_WRITER = WriterProperties(compression="ZSTD")


class CopyNote(Struct, frozen=True):
    """The note in a commit of a copy: which served table was copied, and in which state.

    `root` is the id of the root that serves the table. `cursor` is the cursor of the copied rows,
    from which a follower gets exactly the later changes. `offsets` are the offsets of the frontier,
    by topic and partition.
    """

    root: str
    cursor: str
    pipeline: str
    offsets: Mapping[str, Mapping[int, int]] = {}
    format: int = 1

    def to_json(self) -> str:
        """Returns the note as JSON text, in the form in which the commit stores it."""
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class CopyShape:
    """The columns of a copy, as (name, simple Spark type), and the keys of its rows, if any."""

    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...] = ()


class PlainTable:
    """A copy of a served table, at an address. Only this process writes the copy."""

    def __init__(self, path: str) -> None:
        """Opens the table at a path or URL, if the table exists.

        Raises KappaError if the table exists but cannot be opened.
        """
        self.path = path
        self._listed: dict[int, FileList] = {}
        self._table: DeltaTable | None
        try:
            self._table = open_newest(path)
        except TableNotFoundError:
            self._table = None

    @property
    def version(self) -> int:
        """Returns the newest version, or -1 if the table does not exist yet."""
        return -1 if self._table is None else int(self._table.version())

    def note(self) -> CopyNote | None:
        """Returns the note of the newest commit.

        Returns None if the table does not exist yet, or if another program has made the newest
        commit.
        """
        if self._table is None:
            return None
        try:
            text = commit_info(self.path, self.version).get("userMetadata")
            return msgspec.json.decode(text or "", type=CopyNote)
        except (Damaged, ValueError, TypeError):
            return None

    def row_count(self) -> int:
        """Returns the number of rows in the newest version, from statistics in the Delta log."""
        return sum(count or 0 for count in self._facts("num_records"))

    def size(self) -> int:
        """Returns the total size of the newest version's files, in bytes."""
        return sum(self._facts("size_bytes"))

    def files(self) -> tuple[str, ...]:
        """Lists the files of the newest version, as absolute paths or URLs."""
        if self._table is None:
            return ()
        return files_of(self.path, self.version, self._table.file_uris)

    def replace(self, rows: pa.RecordBatchReader, shape: CopyShape, note: CopyNote) -> None:
        """Replaces all rows and columns of the table. Creates the table if it does not exist."""
        self._write(rows, shape, note, anew=True)

    def append(self, rows: pa.RecordBatchReader, shape: CopyShape, note: CopyNote) -> None:
        """Appends rows to the table. `shape` contains the columns of the table and of the rows."""
        self._write(rows, shape, note, anew=False)

    def merge(
        self,
        rows: pa.RecordBatchReader,
        shape: CopyShape,
        note: CopyNote,
        *,
        count: int,
    ) -> None:
        """Updates, inserts or deletes the rows of the keys in `rows`.

        `rows` contains `count` rows, with the table's columns and the boolean column `GONE`. If
        `GONE` is true, the row of that key is deleted.
        """
        assert self._table is not None, "a missing table is written anew"
        source = _in_shape(rows, replace(shape, columns=(*shape.columns, (GONE, "boolean"))))
        is_small = count <= _FEW_ROWS
        # Brackets matter: see `merge_for`.
        match = " and ".join(
            f"(t.{quoted(key)} is not distinct from s.{quoted(key)})" for key in shape.keys
        )
        values = {quoted(name): f"s.{quoted(name)}" for name, _ in shape.columns}
        merger = self._table.merge(
            source.read_all() if is_small else source,
            predicate=match,
            source_alias="s",
            target_alias="t",
            streamed_exec=not is_small,
            writer_properties=_WRITER,
            commit_properties=commit_properties(note, None),
            post_commithook_properties=NO_HOOKS,
        )
        gone = f"s.{quoted(GONE)}"
        self._commit(
            lambda: (
                merger.when_matched_delete(gone)
                .when_matched_update(values, predicate=f"not {gone}")
                .when_not_matched_insert(values, predicate=f"not {gone}")
                .execute()
            ),
            f"changes could not be written to {self.path}",
        )

    def is_scattered(self) -> bool:
        """Returns True if the table has more than 24 files that are smaller than 16 MiB."""
        return sum(size < _SMALL_BYTES for size in self._facts("size_bytes")) > _MOST_SMALL

    def join_files(self, note: CopyNote) -> None:
        """Joins the small files of a table without keys. The rows and the note stay the same."""
        table = self._table
        assert table is not None, "a missing table has no files"
        self._commit(
            lambda: table.optimize.compact(
                target_size=_JOINED_BYTES,
                writer_properties=_WRITER,
                commit_properties=commit_properties(note, None),
                post_commithook_properties=NO_HOOKS,
            ),
            f"files of {self.path} could not be joined",
        )

    def delete_replaced(self, store: Store, before: float) -> int:
        """Deletes the files that only versions need that were replaced before the time `before`.

        `before` is in seconds since 1970. Each version that was the newest one at this time or
        later is kept. `store` is the store of the table's folder. No commit may run at the same
        time. Returns the number of deleted data files.
        """
        if self._table is None:
            return 0
        made = {
            int(found[1]): entry.changed_at
            for entry in entries_at(f"{self.path}/{LOG_FOLDER}")
            if entry.address.endswith(".json")
            and (found := LOG_FILE.match(entry.address.rsplit("/", 1)[-1])) is not None
        }
        first = max((each for each, at in made.items() if at <= before), default=None)
        if first is None:
            return 0
        ensure_checkpoint(store, self.path, first, None)
        kept = (each for each in made if each >= first)
        return delete_unneeded(
            store, self.path, self.version, kept, vouched=None, listed=self._listed
        )

    def _write(
        self, rows: pa.RecordBatchReader, shape: CopyShape, note: CopyNote, *, anew: bool
    ) -> None:
        source = _in_shape(rows, shape)
        self._commit(
            lambda: write_deltalake(
                url_of(self.path) if self._table is None else self._table,
                source,
                mode="overwrite" if anew else "append",
                schema_mode="overwrite" if anew else None,
                storage_options=delta_options(self.path),
                configuration=dict(PROPERTIES) if self._table is None else None,
                writer_properties=_WRITER,
                commit_properties=commit_properties(note, None),
                post_commithook_properties=NO_HOOKS,
            ),
            f"rows could not be written to {self.path}",
        )
        if self._table is None:
            self._table = open_newest(self.path)

    def _commit(self, act: Callable[[], object], otherwise: str) -> None:
        before = self.version
        failpoint("export.before_commit")
        attempted(act, otherwise)
        failpoint("export.after_commit")
        if self._table is not None and self.version > before + 1:
            raise KappaError(
                f"{otherwise}: another program writes there",
                hint="let kappa export alone write to the folder: the next copy is written anew",
            )

    def _facts(self, name: str) -> Iterator[int]:
        if self._table is not None:
            # The import takes 0.13 s, and other readers of the log do not need it.
            import pyarrow as pa  # noqa: PLC0415

            yield from pa.table(self._table.get_add_actions(flatten=True)).column(name).to_pylist()


def _in_shape(rows: pa.RecordBatchReader, shape: CopyShape) -> pa.RecordBatchReader:
    """Converts rows to the Arrow types of a copy's columns, one batch after the other."""
    import pyarrow as pa  # noqa: PLC0415

    from kappa.declare.values.arrow import arrow_schema  # noqa: PLC0415  # imports pyarrow

    schema = arrow_schema(shape.columns)
    if shape.keys:
        # A merge writes texts so, and some readers do not read files of both types together.
        schema = pa.schema([each.with_type(_with_views(each.type)) for each in schema])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def _with_views(kind: pa.DataType) -> pa.DataType:
    """Replaces `string` in an Arrow type by `string_view`, also in nested types."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_string(kind):
        return pa.string_view()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_with_views(each.type)) for each in kind])
    return kind
