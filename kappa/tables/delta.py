"""The only door to deltalake: tables are opened, committed to and kept small, without a JVM.

Every commit carries the mark of the slice it folded (kappa/state/mark.py). A commit that folds a
slice also carries the transaction that keeps the slice from being folded twice. One process writes
a table; readers read pinned versions by their exact files.
Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal as Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote

from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kappa.base.errors import Broken, Damaged, KappaError, UsageError
from kappa.base.failpoint import failpoint
from kappa.state.mark import Mark, parse_mark
from kappa.tables.archive import ArchiveMark, parse_archive_mark
from kappa.tables.merge import Merge

if TYPE_CHECKING:
    import pyarrow as pa

_Answer = TypeVar("_Answer")

# Reader 1 and writer 2: both writers can write them, every reader can read them. The job itself
# checkpoints and cleans up (laws 3 and 11: by file list, never by age), so Delta must not.
_PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "1000000000",
}
_OURS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_PACKED = WriterProperties(compression="ZSTD")
_LOG = "_delta_log"
# A fold of many records that overflows is the fault of no single one.
OVERFLOW_HINT = (
    "no single record is at fault: fold into a wider type, by a cast of the column in the function"
)
# Checkpoints of a table are seconds apart at least: a second look nearly always finds its log at
# rest.
_LOOKS = 5
# A number that can be added to whole numbers and decimals.
_UNKNOWN = Number("Infinity")
# Up to this many commits, reading them one by one is faster than opening the table.
_FEW = 50
_VERSION = re.compile(r"(\d{20})\.")
# Delta's names for types that differ from Spark's simple ones.
_SIMPLE = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard of a commit: each number of one application is committed once, in ascending order."""

    application: str
    number: int


class StoredTable:
    """One Delta table of a build, held open by the build's job at the newest version."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        """Wraps an open table: `open_table` and `ensure_table` make it."""
        self.path = path
        self._table = table

    @property
    def version(self) -> int:
        """Returns the newest version that this handle knows of.

        It knows its own commits, and after `refresh` those of every writer.
        """
        return int(self._table.version())

    def refresh(self) -> None:
        """Notes commits that were made without this handle."""
        _told(self._table.update_incremental, f"table {self.path} could not be read")

    def reopen(self) -> None:
        """Forgets the log that was read and opens the table again, from its newest checkpoint."""
        self._table = _open(self.path)

    def mark(self) -> Mark:
        """Returns the mark of the newest commit. Raises Damaged if it carries none."""
        return mark_of(self.path, self.version)

    def append(self, rows: pa.Table, mark: Mark, guard: Guard) -> None:
        """Appends rows, whose columns are the table's in its order."""
        self._refuse_again(guard)
        _told(
            lambda: write_deltalake(
                self._table,
                rows,
                mode="append",
                writer_properties=_PACKED,
                commit_properties=_properties(mark, guard),
                post_commithook_properties=_OURS,
            ),
            f"rows could not be appended to {self.path}",
        )

    def merge(
        self,
        rows: pa.Table,
        how: Merge,
        mark: Mark,
        guard: Guard | None,
        *,
        drained: str | None = None,
    ) -> None:
        """Folds contributions into the rows of their keys.

        Without a guard they are of slices that are committed already, and were among the recent
        rows that `drained` names (engine/write/recent.py). Raises Broken if a result does not fit
        its column.
        """
        if guard is not None:
            self._refuse_again(guard)
        before = self.version
        merger = self._table.merge(
            rows,
            predicate=how.match,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            writer_properties=_PACKED,
            commit_properties=_properties(mark, guard, drained),
            post_commithook_properties=_OURS,
        )
        _told(
            lambda: (
                merger.when_matched_update(dict(how.update), predicate=how.update_when)
                .when_not_matched_insert(dict(how.insert))
                .execute()
            ),
            f"contributions could not be folded into {self.path}",
        )
        # If no row changes (all are older than the stored ones), delta-rs commits nothing. The
        # slice is folded all the same.
        if self.version == before:
            self.commit_nothing(mark, guard, drained=drained)

    def commit_nothing(
        self, mark: Mark, guard: Guard | None, *, drained: str | None = None
    ) -> None:
        """Commits a slice that contributes no rows: the table has folded it all the same.

        Without a guard it is the commit of no slice.
        """
        if guard is not None:
            self._refuse_again(guard)
        self._commit_no_rows(
            "append",
            _properties(mark, guard, drained),
            f"a slice could not be marked in {self.path}",
        )

    def empty(self, mark: Mark) -> None:
        """Removes all rows."""
        self._commit_no_rows(
            "overwrite", _properties(mark, None), f"{self.path} could not be emptied"
        )

    def file_sizes(self) -> tuple[int, ...]:
        """Returns the sizes of this version's files, in bytes."""
        return tuple(int(size) for size in self._files_told().column("size_bytes").to_pylist())

    def rows(self) -> int:
        """Counts the rows of this version."""
        return sum(self._files_told().column("num_records").to_pylist())

    def greatest(self, column: str) -> Any:
        """Returns the greatest amount, without its sign, in a column of numbers.

        Infinite if a file has no statistics of the column.
        """
        told = self._files_told()

        def of_files(what: str) -> list[Any]:
            return (
                told.column(f"{what}.{column}").to_pylist()
                if f"{what}.{column}" in told.column_names
                else [None] * told.num_rows
            )

        every = zip(
            told.column("num_records").to_pylist(),
            of_files("null_count"),
            of_files("min"),
            of_files("max"),
            strict=True,
        )
        return max(
            (
                0
                if rows == nulls
                else _UNKNOWN
                if least is None or most is None
                else max(-least, most)
                for rows, nulls, least, most in every
            ),
            default=0,
        )

    def drained(self) -> str | None:
        """Returns what the newest commit drained into the table, or None if it is no drain."""
        return _commit_info(self.path, self.version).get("drained")

    def compact(self, mark: Mark, *, target_bytes: int) -> None:
        """Joins files below the target size; the rows and the mark stay the same."""
        failpoint("table.before_compact")
        _told(
            lambda: self._table.optimize.compact(
                target_size=target_bytes,
                writer_properties=_PACKED,
                commit_properties=_properties(mark, None),
                post_commithook_properties=_OURS,
            ),
            f"files of {self.path} could not be joined",
        )
        failpoint("table.after_compact")

    def checkpoint(self) -> None:
        """Writes a checkpoint of the log at the newest version, so that older files may go."""
        failpoint("table.before_checkpoint")
        _told(self._table.create_checkpoint, f"the log of {self.path} could not be checkpointed")
        failpoint("table.after_checkpoint")

    def _refuse_again(self, guard: Guard) -> None:
        _refuse_again(self.path, self._table, guard)

    def _files_told(self) -> pa.Table:
        # It takes 0.13 s to import, and readers of lists of files do not need it.
        import pyarrow as pa  # noqa: PLC0415

        return pa.table(self._table.get_add_actions(flatten=True))

    def _commit_no_rows(
        self, mode: Literal["append", "overwrite"], properties: CommitProperties, otherwise: str
    ) -> None:
        _told(
            lambda: self._table.create_write_transaction(
                [],
                mode,
                self._table.schema(),
                commit_properties=properties,
                post_commithook_properties=_OURS,
            ),
            otherwise,
        )
        self.refresh()


@dataclass(frozen=True, slots=True)
class Block:
    """One file of an archive: rows of one partition, in the order of their offsets.

    `first` is the first offset that it was read for, and names it. `least` and `greatest` are the
    offsets of its first and last row. It has at least one row.
    """

    path: str
    partition: int
    first: int
    rows: int
    bytes: int
    least: int
    greatest: int


class StoredArchive:
    """The Delta table of one archive, at the newest version when last opened or committed to."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        """Wraps an open table: `open_archive` and `ensure_archive` make it."""
        self.path = path
        self._table = table

    @property
    def version(self) -> int:
        """Returns the newest version that this handle knows of."""
        return int(self._table.version())

    def mark(self) -> ArchiveMark:
        """Returns the archive's mark. Raises Damaged if its newest commit carries none."""
        where = f"version {self.version} of {self.path}"
        return parse_archive_mark(_metadata(self.path, self.version), where=where)

    def blocks(self) -> tuple[Block, ...]:
        """Lists its files, in the order of partitions and offsets."""
        import pyarrow as pa  # noqa: PLC0415  # as above

        found = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        blocks = (
            Block(
                *(
                    f"{self.path}/{unquote(each['path'])}",
                    int(each["partition._partition"]),
                    int(each["partition._block"]),
                    int(each["num_records"]),
                ),
                *(int(each["size_bytes"]), int(each["min._offset"]), int(each["max._offset"])),
            )
            for each in found
        )
        return tuple(sorted(blocks, key=lambda block: (block.partition, block.first)))

    def append(
        self, block: Block | None, replaced: Iterable[Block], mark: ArchiveMark, guard: Guard
    ) -> None:
        """Commits a file that is written already, in place of the files whose rows it contains.

        Without a block, the slice's offsets have no record.
        """
        _refuse_again(self.path, self._table, guard)
        old = [str(each.first) for each in replaced]
        assert block is not None or not old, "what is replaced has rows"
        failpoint("archive.before_append")
        _told(
            lambda: self._table.create_write_transaction(
                [] if block is None else [_added(block)],
                "overwrite" if old else "append",
                self._table.schema(),
                partition_by=_BLOCKED,
                partition_filters=[("_partition", "=", str(block.partition)), ("_block", "in", old)]
                if block is not None and old
                else None,
                commit_properties=_properties(mark, guard),
                post_commithook_properties=_OURS,
            ),
            f"records could not be appended to {self.path}",
        )
        failpoint("archive.after_append")
        _told(self._table.update_incremental, f"archive {self.path} could not be read")

    def tidy(self, *, long_log: int) -> None:
        """Deletes files that the newest version does not need, and its log once that is long.

        No other process may be writing.
        """
        if self.version % long_log == 0:
            _told(
                self._table.create_checkpoint, f"the log of {self.path} could not be checkpointed"
            )
            # A handle that has read the log would read its older files again.
            self._table = _open(self.path)
        for file in unneeded(self.path, self.version, ()):
            file.unlink(missing_ok=True)


# An archive's files are named by their place in the log: so one commit can replace exactly some of
# them.
_BLOCKED = ["_partition", "_block"]


def open_archive(path: str) -> StoredArchive | None:
    """Opens an archive to be read. Returns None if it does not exist."""
    try:
        return StoredArchive(path, _open(path))
    except TableNotFoundError:
        return None


def ensure_archive(
    path: str, columns: Iterable[tuple[str, str]], mark: ArchiveMark
) -> StoredArchive:
    """Opens an archive, or makes it, empty and with this mark, if it does not exist."""
    found = open_archive(path)
    if found is not None:
        return found
    from kappa.values.arrow import arrow_schema  # noqa: PLC0415  # imports pyarrow

    schema = arrow_schema([*columns, ("_block", "bigint")])
    failpoint("archive.before_create")
    made = _told(
        lambda: DeltaTable.create(
            _url(path),
            schema,
            partition_by=_BLOCKED,
            configuration=dict(_PROPERTIES),
            commit_properties=_properties(mark, None),
            post_commithook_properties=_OURS,
        ),
        f"archive {path} could not be made",
    )
    failpoint("archive.after_create")
    return StoredArchive(path, made)


def open_table(path: str) -> StoredTable | None:
    """Opens a build's table. Returns None if it does not exist."""
    try:
        return StoredTable(path, _open(path))
    except TableNotFoundError:
        return None


def _added(block: Block) -> AddAction:
    stats = {
        "numRecords": block.rows,
        "minValues": {"_offset": block.least},
        "maxValues": {"_offset": block.greatest},
        "nullCount": {"_offset": 0},
    }
    name, changed = Path(block.path).name, int(Path(block.path).stat().st_mtime * 1000)
    return AddAction(
        name,
        block.bytes,
        {"_partition": str(block.partition), "_block": str(block.first)},
        changed,
        True,  # noqa: FBT003  # deltalake's signature
        json.dumps(stats),
    )


def _refuse_again(path: str, table: DeltaTable, guard: Guard) -> None:
    done = table.transaction_version(guard.application)
    # 0 is a number too: only None means that the application has committed nothing.
    if done is not None and done >= guard.number:
        raise Broken(
            f"transaction {guard.number} of {guard.application} is in {path} already, "
            "and its newest commit does not say so",
            hint="kappa replay makes a new build of it",
        )


def ensure_table(path: str, columns: Iterable[tuple[str, str]], mark: Mark) -> StoredTable:
    """Opens a build's table, or makes it if it does not exist.

    It is made empty, with this mark as version 0.
    """
    found = open_table(path)
    if found is not None:
        return found
    from kappa.values.arrow import arrow_schema  # noqa: PLC0415  # imports pyarrow

    schema = arrow_schema(columns)
    failpoint("table.before_create")
    made = _told(
        lambda: DeltaTable.create(
            _url(path),
            schema,
            configuration=dict(_PROPERTIES),
            commit_properties=_properties(mark, None),
            post_commithook_properties=_OURS,
        ),
        f"table {path} could not be made",
    )
    failpoint("table.after_create")
    return StoredTable(path, made)


def adopt(path: str, source: str, version: int, mark: Mark) -> int:
    """Makes a table with the rows of another at a version, and a mark of its own.

    Returns the version of the new table. It has the same files, by hard links if the disk has them:
    they never change, and each table deletes its own names of them. The log is linked too, from the
    version's checkpoint on. The version must be kept meanwhile. Raises Damaged if it does not exist
    (any more), and KappaError if the disk has no room.
    """
    failpoint("table.before_adopt")
    # Log files before a new checkpoint may be deleted while they are listed and linked.
    _looked(lambda: _take_along(Path(path), source, version))
    made = StoredTable(path, _open(path))
    made.commit_nothing(mark, None)
    failpoint("table.after_adopt")
    return made.version


def _take_along(into: Path, source: str, version: int) -> None:
    names = files(source, version)
    log = Path(source) / _LOG
    numbered = {
        number: file
        for file in log.glob("*.checkpoint.parquet")
        if (number := int(file.name[:20])) <= version
    }
    checkpoint = max(numbered, default=None)
    commits = [
        file
        for file in log.glob("*.json")
        if _VERSION.match(file.name)
        and (0 if checkpoint is None else checkpoint) <= int(file.name[:20]) <= version
    ]
    (into / _LOG).mkdir(parents=True, exist_ok=True)
    try:
        for name in names:
            link_file(Path(name), into / Path(name).name)
        for file in commits if checkpoint is None else [numbered[checkpoint], *commits]:
            link_file(file, into / _LOG / file.name)
    except FileNotFoundError as error:
        raise Damaged(
            f"version {version} of {source} is not whole: {error.filename} is gone",
            hint="a lease may have run out: ask again",
        ) from error
    except OSError as error:
        raise KappaError(
            f"version {version} of {source} could not be copied: {error}",
            hint="see whether the disk is full; "
            "on the disk of its root nothing is copied, but linked",
        ) from error


def link_file(file: Path, link: Path) -> None:
    """Links a file that never changes to another name, or copies it if the disk has no links.

    Raises FileNotFoundError if the file does not exist any more.
    """
    try:
        os.link(file, link)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:
        # Another disk, or one without links.
        shutil.copyfile(file, link)


def newest_version(path: str) -> int | None:
    """Returns the newest version of a table, or None if the table does not exist."""
    try:
        return int(_open(path).version())
    except TableNotFoundError:
        return None


def files(path: str, version: int) -> tuple[str, ...]:
    """Lists the exact data files of one version, as absolute paths.

    Raises Damaged if that version does not exist (any more).
    """
    return _looked(
        lambda: tuple(
            sorted(
                _local(uri)
                for uri in _told(
                    _at(path, version).file_uris,
                    f"the files of {path} version {version} could not be listed",
                )
            )
        )
    )


class FileLists:
    """A cache over `files`: it lists a version by the few commits since the last version listed."""

    def __init__(self, *, tables: int = 256) -> None:
        """Makes an empty cache, which remembers at most so many tables."""
        self._tables = tables
        self._last: dict[str, tuple[int, frozenset[str]]] = {}

    def at(self, path: str, version: int) -> tuple[str, ...]:
        """Lists the files of a version, as `files` does.

        Of a version that does not exist any more it may list the files that it had.
        """
        last = self._last.get(path)
        found = (
            None
            if last is None or not last[0] < version <= last[0] + _FEW
            else _after(path, *last, version)
        )
        found = frozenset(files(path, version)) if found is None else found
        if last is None or last[0] < version:
            self._last.pop(path, None)
            self._last[path] = version, found
            for forgotten in list(self._last)[: -self._tables]:
                self._last.pop(forgotten, None)
        return tuple(sorted(found))


def _after(path: str, version: int, there: frozenset[str], until: int) -> frozenset[str] | None:
    """Lists the files of version `until`, by those of `version` and the commits since.

    Returns None if one of these commits cannot be read (any more).
    """
    found = set(there)
    for number in range(version + 1, until + 1):
        try:
            actions = [
                json.loads(line)
                for line in _commit(path, number).read_text(encoding="utf-8").splitlines()
            ]
        except (OSError, ValueError):
            return None
        for action in actions:
            if "remove" in action:
                found.discard(_file(path, action["remove"]["path"]))
            elif "add" in action:
                found.add(_file(path, action["add"]["path"]))
    return frozenset(found)


def _file(path: str, named: str) -> str:
    # A commit names its files relative to the table, and escaped.
    return f"{path}/{unquote(named)}"


def _commit(path: str, version: int) -> Path:
    return Path(path) / _LOG / f"{version:020d}.json"


def schema(path: str, version: int) -> tuple[tuple[str, str], ...]:
    """Lists the columns of one version: (name, Spark's simple type)."""
    fields = json.loads(_looked(lambda: _at(path, version).schema().to_json()))["fields"]
    return tuple((str(field["name"]), _simple(field["type"])) for field in fields)


def mark_of(path: str, version: int) -> Mark:
    """Returns the mark of the commit that made a version.

    Raises Damaged if the commit carries none, or does not exist (any more).
    """
    return parse_mark(_metadata(path, version), where=f"version {version} of {path}")


def _metadata(path: str, version: int) -> str | None:
    return _commit_info(path, version).get("userMetadata")


def _commit_info(path: str, version: int) -> Mapping[str, Any]:
    try:
        lines = _commit(path, version).read_text(encoding="utf-8").splitlines()
        infos = [json.loads(line).get("commitInfo") for line in lines if '"commitInfo"' in line]
    except (OSError, ValueError) as error:
        raise Damaged(
            f"version {version} of {path} cannot be read: {error}",
            hint="kappa replay makes a new build of it",
        ) from error
    return next((info for info in infos if info), {})


def delete_unneeded(
    path: str,
    newest: int,
    pinned: Iterable[int],
    *,
    listed: dict[int, tuple[str, ...]] | None = None,
) -> int:
    """Deletes every file that `unneeded` lists, and returns how many of them were data files.

    No commit may be under way.
    """
    deleted = 0
    for file in unneeded(path, newest, pinned, listed=listed):
        failpoint("table.before_delete")
        file.unlink(missing_ok=True)
        failpoint("table.after_delete")
        deleted += file.parent.name != _LOG and not file.name.startswith(".")
    return deleted


def unneeded(
    path: str,
    newest: int,
    pinned: Iterable[int],
    *,
    listed: dict[int, tuple[str, ...]] | None = None,
) -> tuple[Path, ...]:
    """Lists the files that neither the newest version nor a pinned one needs.

    A version needs its data files, and its log from the newest checkpoint before it. A pinned
    version that is not whole any more was deleted before it was pinned, and is passed over: its
    reader notices, and starts over. `listed` keeps the files of pinned versions from one call to
    the next: they never change, and each version costs some milliseconds to list. Raises Damaged if
    the newest version itself is not whole.
    """
    known = {} if listed is None else listed
    # Names and not paths: an hour of history has thousands, and a slice waits meanwhile.
    with os.scandir(path) as entries:
        there = {entry.path for entry in entries if not entry.is_dir()}
    kept = {newest: files(path, newest)} | {
        version: found
        for version in sorted(set(pinned))
        if (found := _whole(path, version, there, known)) is not None
    }
    for version in known.keys() - kept.keys():
        del known[version]
    lost = next((name for name in kept[newest] if name not in there), None)
    if lost is not None:
        raise Damaged(
            f"file {lost} is gone, and the newest version of its table needs it",
            hint="kappa replay makes a new build of it",
        )
    needed = {name for names in kept.values() for name in names}
    data = [Path(name) for name in sorted(there) if name not in needed]
    return (
        *(file for file in data if str(_subject(file)) not in needed),
        *_unneeded_log(Path(path) / _LOG, kept),
    )


def ensure_checkpointed(path: str, version: int) -> None:
    """Writes a checkpoint at a version that is kept for long, if it has none.

    The version is then read from that checkpoint, and the log before it may be deleted.
    """
    if not (Path(path) / _LOG / f"{version:020d}.checkpoint.parquet").exists():
        failpoint("table.before_kept_checkpoint")
        _told(_at(path, version).create_checkpoint, f"the log of {path} could not be checkpointed")
        failpoint("table.after_kept_checkpoint")


def _whole(
    path: str, version: int, there: set[str], known: dict[int, tuple[str, ...]]
) -> tuple[str, ...] | None:
    try:
        found = known[version] if version in known else files(path, version)
    except Damaged:
        return None
    if not there.issuperset(found):
        return None
    known[version] = found
    return found


def _subject(file: Path) -> Path:
    # Spark writes `.NAME.crc` beside NAME.
    return file.with_name(file.name[1:].removesuffix(".crc")) if file.name.startswith(".") else file


def _unneeded_log(log: Path, versions: Collection[int]) -> list[Path]:
    names = sorted(file.name for file in os.scandir(log))
    numbered = [
        (int(found[1]), name)
        for name in names
        if (found := _VERSION.match(name.removeprefix("."))) is not None
    ]
    checkpoints = sorted(
        {number for number, name in numbered if name.endswith(".checkpoint.parquet")}
    )
    # A version is read from the newest checkpoint that is not after it, or from the first commit.
    needed = {
        each
        for version in versions
        for each in range(
            max((number for number in checkpoints if number <= version), default=0), version + 1
        )
    }
    newest = max(versions)
    return [log / name for number, name in numbered if number < newest and number not in needed]


def _properties(
    mark: Mark | ArchiveMark, guard: Guard | None, drained: str | None = None
) -> CommitProperties:
    # Spark's Delta keeps it in `userMetadata` too, so both writers' commits are read alike.
    # A table has one writer, so nothing is retried.
    return CommitProperties(
        custom_metadata={"userMetadata": mark.to_json()}
        | ({} if drained is None else {"drained": drained}),
        max_commit_retries=0,
        app_transactions=None if guard is None else [Transaction(guard.application, guard.number)],
    )


def _open(path: str) -> DeltaTable:
    try:
        return DeltaTable(_url(path))
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise Damaged(
            f"table {path} cannot be opened: {_first_line(error)}",
            hint="kappa replay makes a new build of it",
        ) from error


def _looked(look: Callable[[], _Answer]) -> _Answer:
    """Reads a pinned version, and again if its log changed meanwhile.

    A job may delete log files that its newest checkpoint has made needless. A reader that listed
    the log before that checkpoint may be about to read them. The version itself is kept, and the
    next attempt reads it from the checkpoint.
    """
    for _ in range(_LOOKS - 1):
        try:
            return look()
        except KappaError:
            continue
    return look()


def _at(path: str, version: int) -> DeltaTable:
    try:
        return DeltaTable(_url(path), version=version)
    except (DeltaError, OSError) as error:
        raise Damaged(
            f"version {version} of {path} cannot be opened: {_first_line(error)}",
            hint="a lease may have run out: ask again",
        ) from error


def _told(act: Callable[[], _Answer], otherwise: str) -> _Answer:
    try:
        return act()
    except (DeltaError, OSError, ValueError) as error:
        text = str(error)
        # DataFusion refuses casts and decimals that overflow in these words.
        if "out of range" in text or "too large to store" in text or "Overflow" in text:
            raise Broken(
                f"{otherwise}: {text.rsplit('error: ', 1)[-1]}", hint=OVERFLOW_HINT
            ) from error
        raise KappaError(
            f"{otherwise}: {_first_line(error)}",
            hint="see whether the disk is full or the folder may be written",
        ) from error


def _simple(kind: object) -> str:
    match kind:
        case str():
            return _SIMPLE.get(kind, kind)
        case {"type": "array", "elementType": element}:
            return f"array<{_simple(element)}>"
        case {"type": "struct", "fields": [*fields]}:
            return (
                "struct<"
                + ",".join(f"{field['name']}:{_simple(field['type'])}" for field in fields)
                + ">"
            )
        case _:
            raise Damaged(f"a table has a column of the type {kind}, which Kappa does not write")


def _url(path: str) -> str:
    if "%" in path:
        raise UsageError(
            f"the path {path} has a per cent sign, which delta-rs takes for an escape",
            hint="set root in kappa.toml to a folder without one",
        )
    return Path(path).as_uri()


def _local(uri: str) -> str:
    # delta-rs returns paths escaped, with or without the scheme.
    return unquote(uri.removeprefix("file://"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
