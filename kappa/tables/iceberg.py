"""Plain tables as Iceberg tables: the same data files, with Iceberg's own metadata.

The catalog is a SQLite file, in the form of Iceberg's JDBC catalog. A change of a table is first
staged: it is stored under another catalog name, which readers do not use. A switch then makes all
staged changes visible to readers in one transaction of the SQLite file, so a reader always sees all
tables of the same switch. pyiceberg is an extra (`pip install 'kappa[iceberg]'`), and only this
module imports it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from kappa.base.errors import KappaError, SettingsError
from kappa.base.failpoint import failpoint
from kappa.declare.values.columns import Array, Decimal, Scalar, Struct, Type, parse_type

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.types import IcebergType

Columns = Sequence[tuple[str, str]]
# The name of the catalog that readers load, and of its only namespace.
CATALOG = "kappa"
# Readers do not load this catalog: its tables are of the next switch.
_STAGED = "kappa-staged"
CATALOG_FILE = "catalog.db"
# The columns of a table as Kappa declares them, in the table's own properties.
_COLUMNS = "kappa.columns"
# How many older descriptions of a table its newest description names.
_DESCRIPTIONS = "20"
_SWITCH = """
insert or replace into iceberg_tables
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location,
   iceberg_type)
select ?, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type
from iceberg_tables where catalog_name = ? and table_name = ?
"""
_LEAVE = "delete from iceberg_tables where catalog_name = ? and table_name = ?"
_NAMESPACE = """
insert or ignore into iceberg_namespace_properties
  (catalog_name, namespace, property_key, property_value)
values (?, ?, 'exists', 'true')
"""


class IcebergCatalog:
    """The Iceberg tables in a folder, and the SQLite file that lists these tables.

    A change is first staged, and becomes visible to readers by `switch`.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the catalog in a folder. A missing catalog is created.

        Raises SettingsError if pyiceberg is not installed, and KappaError if the file is not a
        catalog.
        """
        self._folder = folder
        self.file = folder / CATALOG_FILE
        try:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  # an extra
            from pyiceberg.exceptions import NamespaceAlreadyExistsError  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                "Iceberg tables need pyiceberg, which is not installed",
                hint="pip install 'kappa[iceberg]'",
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._staged: SqlCatalog = SqlCatalog(
            _STAGED, uri=f"sqlite:///{self.file}", warehouse=f"file://{folder}"
        )
        with suppress(NamespaceAlreadyExistsError):
            self._staged.create_namespace(CATALOG)

    def stage(
        self, name: str, columns: Columns, files: Iterable[str], note: Mapping[str, str]
    ) -> int:
        """Stores a snapshot of a table with exactly these data files. Returns its id.

        Readers see the snapshot only after the next `switch`. `columns` are pairs of name and Spark
        type. `files` are absolute paths. `note` is stored in the summary of the snapshot. If the
        table has exactly these files already, no new snapshot is made, and the id of the current
        snapshot is returned.
        """
        table = self._table(name, columns)
        with table.transaction() as changes:
            _put_columns(changes, columns)
            there = {each.file_path: each for each in _data_files(table)}
            wanted = {f"file://{file}": None for file in files}
            snapshot = table.metadata.current_snapshot()
            if snapshot is None or there.keys() != wanted.keys():
                _put_files(changes, table, there, wanted, note)
        found = table.metadata.current_snapshot()
        assert found is not None, "the first staging makes a snapshot, if an empty one"
        return found.snapshot_id

    def switch(self, names: Iterable[str]) -> None:
        """Makes the staged state of exactly these tables visible to readers, in one transaction.

        A staged state is stored, but readers do not use it yet. After the switch, readers no longer
        see any other table of the catalog.
        """
        wanted = set(names)
        with closing(sqlite3.connect(self.file)) as file:
            failpoint("export.before_catalog")
            with file:
                file.execute(_NAMESPACE, (CATALOG, CATALOG))
                for (left,) in file.execute(
                    "select table_name from iceberg_tables where catalog_name = ?", (CATALOG,)
                ).fetchall():
                    if left not in wanted:
                        file.execute(_LEAVE, (CATALOG, left))
                for name in wanted:
                    file.execute(_SWITCH, (CATALOG, _STAGED, name))
            failpoint("export.after_catalog")

    def expire(self, names: Iterable[str], before: float) -> None:
        """Removes snapshots that are older than `before` from these tables, as a staged change.

        `before` is in seconds since 1970. The current snapshot of a table is not removed. Readers
        see the change after the next `switch`.
        """
        for name in names:
            table = self._load(name)
            if table is not None and any(
                each.timestamp_ms < before * 1000
                for each in table.metadata.snapshots
                if each.snapshot_id != table.metadata.current_snapshot_id
            ):
                table.maintenance.expire_snapshots().older_than(
                    datetime.fromtimestamp(before, UTC)
                ).commit()

    def delete_replaced(self, names: Iterable[str], before: float) -> None:
        """Deletes old metadata files of these tables that no snapshot needs.

        A file is old if it was written before `before`, in seconds since 1970. Call this method
        after the switch that follows `expire`.
        """
        for name in names:
            table = self._load(name)
            if table is None:
                continue
            needed = set(_metadata_files(table))
            for file in (self._folder / name / "metadata").glob("*"):
                with suppress(FileNotFoundError):
                    if f"file://{file}" not in needed and file.stat().st_mtime < before:
                        file.unlink()

    def close(self) -> None:
        """Closes the connections to the SQLite file."""
        self._staged.engine.dispose()

    def _load(self, name: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

        try:
            return self._staged.load_table((CATALOG, name))
        except NoSuchTableError:
            return None
        except (OSError, ValueError) as error:
            raise KappaError(
                f"the Iceberg table {name} in {self._folder} cannot be read: {error}",
                hint=f"delete {self._folder}, and export again: only metadata are there",
            ) from error

    def _table(self, name: str, columns: Columns) -> Table:
        found = self._load(name)
        if found is not None:
            return found
        from pyiceberg.schema import Schema  # noqa: PLC0415
        from pyiceberg.types import NestedField  # noqa: PLC0415

        ids = count(1)
        fields = [
            NestedField(next(ids), column, _iceberg_type(kind, ids), required=False)
            for column, kind in columns
        ]
        return self._staged.create_table(
            (CATALOG, name),
            Schema(*fields),
            # Not quoted: pyiceberg takes a quoted letter for itself.
            location=f"file://{self._folder / name}",
            properties={
                "format-version": "2",
                "write.metadata.previous-versions-max": _DESCRIPTIONS,
                _COLUMNS: json.dumps(columns),
            },
        )


def _put_columns(changes: Transaction, columns: Columns) -> None:
    """Changes the columns of a table to `columns`.

    If the type of a column changes, the column is deleted and added as a new column.
    """
    known = dict(json.loads(changes.table_metadata.properties[_COLUMNS]))
    wanted = dict(columns)
    if known != wanted:
        ids = count(1)
        with changes.update_schema(allow_incompatible_changes=True) as schema:
            for name, kind in known.items():
                if wanted.get(name) != kind:
                    schema.delete_column((name,))
            for name, kind in columns:
                if known.get(name) != kind:
                    schema.add_column((name,), _iceberg_type(kind, ids))
    # Delta's writer numbers no columns in its files: readers find columns by name.
    mapping = changes.table_metadata.schema().name_mapping.model_dump_json()
    put = {"schema.name-mapping.default": mapping, _COLUMNS: json.dumps(columns)}
    # An update of the schema may have put the mapping already.
    if any(changes.table_metadata.properties.get(name) != put[name] for name in put):
        changes.set_properties(put)


def _put_files(
    changes: Transaction,
    table: Table,
    there: Mapping[str, DataFile],
    wanted: Mapping[str, None],
    note: Mapping[str, str],
) -> None:
    from pyiceberg.io.pyarrow import parquet_files_to_data_files  # noqa: PLC0415

    with changes.update_snapshot(snapshot_properties=dict(note)).overwrite() as snapshot:
        for name, file in there.items():
            if name not in wanted:
                snapshot.delete_data_file(file)
        new = (name for name in wanted if name not in there)
        for file in parquet_files_to_data_files(table.io, changes.table_metadata, new):
            snapshot.append_data_file(file)


def _data_files(table: Table) -> Iterator[DataFile]:
    snapshot = table.metadata.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _metadata_files(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for description in table.metadata.metadata_log:
        yield description.metadata_file
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path


def _iceberg_type(kind: str | Type, ids: Iterator[int]) -> IcebergType:
    """Returns the Iceberg type of a Kappa type. `ids` yields the ids of nested fields."""
    from pyiceberg import types  # noqa: PLC0415

    scalars: Mapping[str, IcebergType] = {
        "string": types.StringType(),
        "boolean": types.BooleanType(),
        # Iceberg has no smaller integers.
        "tinyint": types.IntegerType(),
        "smallint": types.IntegerType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "date": types.DateType(),
        "timestamp": types.TimestamptzType(),
    }
    parsed = parse_type(kind) if isinstance(kind, str) else kind
    match parsed:
        case Scalar(name):
            return scalars[name]
        case Decimal(precision, scale):
            return types.DecimalType(precision, scale)
        case Array(element):
            return types.ListType(next(ids), _iceberg_type(element, ids), element_required=False)
        case Struct(fields):
            return types.StructType(
                *(
                    types.NestedField(
                        next(ids), each.name, _iceberg_type(each.type, ids), required=False
                    )
                    for each in fields
                )
            )
        case _:
            assert_never(parsed)
