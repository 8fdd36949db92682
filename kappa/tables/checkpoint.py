"""Checkpoints of a Delta table's log, each complete or absent, even after a power loss.

deltalake writes a checkpoint directly to its final name, and a reader uses a checkpoint once its
name exists. So on a disk, Kappa first lets deltalake write the checkpoint in a separate folder that
contains links to the same log files. The checkpoint is synced there, and then linked to its final
name.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from kappa.base.disk import link_file
from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.state.files.address import file_exists, read_file, write_file
from kappa.state.store import Store
from kappa.tables.delta import LAST_CHECKPOINT, LOG_FOLDER, attempted, open_version
from kappa.tables.file_list import ensure_vouched, read_list
from kappa.tables.versions import log_of

# Not a file of a table: lists of a table's files leave folders out.
_BESIDE = "_checkpoint"


def ensure_checkpoint(store: Store, path: str, version: int, vouched: str | None) -> None:
    """Writes a checkpoint of a table's log at a version, so that older log files can be deleted.

    Does nothing if the checkpoint exists. The version must be kept until this function returns.
    `vouched` is the checksum of the version's file list that the frontier contains, or None. Raises
    Damaged if the version does not exist (any more), or if its file list does not have this
    checksum. Raises KappaError if the checkpoint could not be written.
    """
    name = f"{version:020d}.checkpoint.parquet"
    if file_exists(f"{path}/{LOG_FOLDER}/{name}"):
        if store.is_on_disk:
            # The writer may have died before the checkpoint's name was on the disk.
            store.sync([Path(path) / LOG_FOLDER / name])
        return
    failpoint("table.before_checkpoint")
    # A checkpoint would make a loss in the log permanent.
    found = read_list(path, version)
    ensure_vouched(path, found, vouched)
    if store.is_on_disk:
        _write_on_disk(store, path, version, name, found.sum)
    else:
        _write_in_bucket(path, version)
    failpoint("table.after_checkpoint")


def _write_on_disk(store: Store, path: str, version: int, name: str, expected: str) -> None:
    log, beside = Path(path) / LOG_FOLDER, Path(path) / _BESIDE
    # An interrupted process may have left the folder.
    shutil.rmtree(beside, ignore_errors=True)
    try:
        (beside / LOG_FOLDER).mkdir(parents=True)
        for file in map(Path, log_of(path, version)):
            link_file(file, beside / LOG_FOLDER / file.name)
        attempted(
            open_version(str(beside), version).create_checkpoint,
            f"the log of {path} could not be checkpointed",
        )
        ensure_vouched(path, read_list(str(beside), version), expected)
        written, hint = beside / LOG_FOLDER / name, beside / LOG_FOLDER / LAST_CHECKPOINT
        store.sync([written, hint])
        link_file(written, log / name)
        # With a hint at a missing checkpoint, the table could not be opened.
        store.sync([log / name])
        if (hinted(str(log / LAST_CHECKPOINT)) or -1) < version:
            hint.replace(log / LAST_CHECKPOINT)
    except OSError as error:
        raise KappaError(
            f"the log of {path} could not be checkpointed: {error.strerror or error}",
            hint="see whether the disk is full or the folder may be written",
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_in_bucket(path: str, version: int) -> None:
    """Writes a checkpoint of a table in a bucket directly to its final name.

    This is safe, because an object in a bucket is complete or absent. deltalake then also changes
    the file `_last_checkpoint`, which names the newest checkpoint. If this file named a newer
    checkpoint before, the function restores the file.
    """
    hint = f"{path}/{LOG_FOLDER}/{LAST_CHECKPOINT}"
    newer = read_file(hint) if (hinted(hint) or -1) > version else None
    attempted(
        open_version(path, version).create_checkpoint,
        f"the log of {path} could not be checkpointed",
    )
    if newer is not None:
        # delta-rs names the checkpoint that it has made last.
        write_file(hint, newer)


def hinted(hint: str) -> int | None:
    """Returns the version of the checkpoint that a table's file `_last_checkpoint` names.

    `hint` is the address of the file. Returns None if the file does not exist or names no version.
    """
    try:
        return int(json.loads(read_file(hint))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
