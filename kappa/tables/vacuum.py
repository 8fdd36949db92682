"""Finds and deletes the files of a Delta table that no version in use needs.

The versions in use are the newest version and the pinned versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.state.files.address import delete_files, deletion_parts, files_in
from kappa.state.store import Store
from kappa.tables.delta import LOG_FILE, LOG_FOLDER
from kappa.tables.file_list import FileList
from kappa.tables.versions import list_of, list_since


def delete_unneeded(
    store: Store,
    path: str,
    newest: int,
    pinned: Iterable[int],
    *,
    vouched: str | None,
    listed: dict[int, FileList] | None = None,
) -> int:
    """Deletes the files that `unneeded` lists. Returns the number of deleted data files.

    No commit may run at the same time.
    """
    going = unneeded(store, path, newest, pinned, vouched=vouched, listed=listed)
    for part in deletion_parts(going):
        failpoint("table.before_delete")
        delete_files(part)
        failpoint("table.after_delete")
    split = [file.rsplit("/", 1) for file in going]
    names = [name for folder, name in split if not folder.endswith(f"/{LOG_FOLDER}")]
    return sum(not name.startswith(".") for name in names)


def unneeded(
    store: Store,
    path: str,
    newest: int,
    pinned: Iterable[int],
    *,
    vouched: str | None,
    listed: dict[int, FileList] | None = None,
) -> tuple[str, ...]:
    """Lists the files of a table that neither the newest version nor a pinned version needs.

    A version needs its data files, and the log files from the last checkpoint before the version.
    This function syncs that checkpoint to the disk. The caller must have deleted all commits after
    the version `newest`. If files of a pinned version are missing, they were deleted before the
    version was pinned. Then this function skips the version: the reader that has pinned it notices
    the loss and starts over.

    `listed` is a cache of file lists by version; the caller passes the same cache to each call,
    because a file list never changes, and reading a list takes some milliseconds. `vouched` is the
    checksum of the newest version's file list that the frontier contains, or None. Raises Damaged
    if a file of the newest version is missing, or if the newest version's file list does not have
    the checksum `vouched`.
    """
    known = {} if listed is None else listed
    # Names and not paths: an hour of history has thousands of names, and a slice waits meanwhile.
    there = {f"{path}/{name}" for name in files_in(path)}
    if newest not in known:
        known[newest] = list_of(path, newest, vouched)
    kept = {newest: known[newest].at(path)} | {
        version: found.at(path)
        for version in sorted(set(pinned))
        if (found := _files_if_whole(path, version, there, known)) is not None
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
    data = [file for file in sorted(there) if file not in needed]
    in_log = _unneeded_log(f"{path}/{LOG_FOLDER}", kept)
    if in_log and store.is_on_disk:
        # The writer of a checkpoint may have died before the checkpoint's name was on the disk:
        # readers need the checkpoint in place of the deleted files. Its bytes are there before its
        # name: one sync of the folder will do.
        checkpoints = {*(Path(path) / LOG_FOLDER).glob("*.checkpoint.parquet")}
        store.sync(sorted(checkpoints - {*map(Path, in_log)})[-1:])
    return (*(file for file in data if _subject(file) not in needed), *in_log)


def _files_if_whole(
    path: str, version: int, there: set[str], known: dict[int, FileList]
) -> FileList | None:
    try:
        found = known[version] if version in known else list_since(path, known, version)
    except Damaged:
        return None
    if not there.issuperset(found.at(path)):
        return None
    known[version] = found
    return found


def _subject(file: str) -> str:
    # Spark writes `.NAME.crc` beside NAME.
    folder, name = file.rsplit("/", 1)
    return f"{folder}/{name[1:].removesuffix('.crc')}" if name.startswith(".") else file


def _unneeded_log(log: str, versions: Collection[int]) -> list[str]:
    names = sorted(files_in(log))
    numbered = [
        (int(found[1]), name)
        for name in names
        if (found := LOG_FILE.match(name.removeprefix("."))) is not None
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
    return [f"{log}/{name}" for number, name in numbered if number not in needed]
