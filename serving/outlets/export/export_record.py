"""The record of an export: the file that names one version of each table.

A reader of several tables takes their versions from this file. The file is put whole, once all
tables are written, so the file never names tables of two moments.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.state.files.address import entries_at
from kappa.state.store import Store

# The name of the file, in the folder of the export.
RECORD = "kappa-export.json"


class ExportedTable(Struct, frozen=True):
    """A table of an export: the version to read, and the place that its rows are of.

    `cursor` is the cursor of the table's changes: generation, build and frontier. `offsets` are
    those of the frontier, by topic and partition. `snapshot` is the id of the Iceberg snapshot; 0
    without Iceberg.
    """

    cursor: str
    pipeline: str
    version: int
    offsets: Mapping[str, Mapping[int, int]]
    snapshot: int = 0


class ExportRecord(Struct, frozen=True):
    """The content of the file: the root that writes, and all tables of the last switch.

    `switched_at` is "" before the first switch.
    """

    root: str
    tables: Mapping[str, ExportedTable] = {}
    generation: int = 0
    switched_at: str = ""
    format: int = 1


def claim_target(target: Store, root: str) -> ExportRecord:
    """Returns the record of a folder that this root writes, made if the folder is empty.

    Raises Conflict if another root writes the folder, and UsageError if the folder has other files.
    """
    found = read_record(target)
    if found is None:
        there = entries_at(target.address("").rstrip("/"))
        if strange := next((each.address for each in there if not each.is_folder), None):
            raise UsageError(
                f"{target.url} is not empty, and no export: it has a file {strange}",
                hint="give --to an empty folder, or one that does not exist yet",
            )
        found = ExportRecord(root)
        if not target.put_new_json(RECORD, msgspec.to_builtins(found, str_keys=True)):
            found = read_record(target) or found
    if found.root != root:
        raise Conflict(
            f"{target.url} has the export of another root, {found.root}",
            hint="give --to another folder; or delete this one, if that root exports no more",
        )
    return found


def read_record(target: Store) -> ExportRecord | None:
    """Returns the record of a folder, or None if the folder has none. Raises Damaged."""
    document = target.get_json(RECORD)
    if document is None:
        return None
    try:
        return msgspec.convert(document, ExportRecord, str_keys=True)
    except msgspec.ValidationError as error:
        raise Damaged(
            f"{target.address(RECORD)} is not the record of an export: {error}",
            hint="delete the folder, and export again",
        ) from error


def put_record(target: Store, record: ExportRecord) -> None:
    """Puts the record in place of the earlier record, whole."""
    target.put_json(RECORD, msgspec.to_builtins(record, str_keys=True))
