"""Functions that make the tables of a frontier durable, and delete later commits.

A frontier is published only after all files of its tables are on the disk. The frontier contains
the checksums of the new files. The commits after the newest frontier may be incomplete: the slice
may be committed to only some of the tables, or a power loss may have damaged a commit. So the
build's next job deletes all of these commits, and folds the slice again. No reader has ever seen
these commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.base.log_lines import Level, write_log_line
from kappa.state.build import Birth, folder_of_build, recent_names, table_path
from kappa.state.file_sums import (
    RecordedSums,
    ensure_whole,
    new_sums,
    note_whole,
    sum_name,
    sums_in_bucket,
)
from kappa.state.files.address import (
    ask_side_by_side,
    delete_file,
    delete_folder,
    delete_scratch,
    files_in,
)
from kappa.state.frontier import Frontier, Frontiers, Sum, Sums
from kappa.state.store import Store
from kappa.tables.checkpoint import hinted
from kappa.tables.delta import LAST_CHECKPOINT, LOG_FILE, LOG_FOLDER
from kappa.tables.file_list import put_or_read_commit
from kappa.tables.versions import (
    files,
    files_of_commit,
    forget_lists,
    list_of,
    log_of,
    note_compared,
)


def sync_versions(
    store: Store,
    build: str,
    before: Mapping[str, int],
    after: Mapping[str, int],
    *,
    known: Sums | None = None,
) -> Sums:
    """Waits until a build's new commits are on the disk, and returns the new files' checksums.

    `before` and `after` map tables to versions. The commits after the version in `before` are
    synced, up to the version in `after`. If a table is only in `after`, all of its files are
    synced. The result contains the checksum of each new data file. If `known` or an earlier record
    contains the checksum of a file, this checksum is used; any other checksum is computed now.
    Raises Damaged if a commit cannot be read.

    If the root is in a bucket, nothing is synced. The checksums of files that this host has
    uploaded are already known. The other files are downloaded to compute their checksums. Only the
    files of a branch are not downloaded, because all of their checksums are in `known`.
    """
    if not store.is_on_disk:
        return _sums_in_bucket(store, build, before, after, known)
    known = known or {}
    if not before:
        # All records of frontiers may have been lost; joined sums are still there then.
        known = {**known, **RecordedSums(store, build).all()}
    found: list[Path] = []

    def behind(name: str, version: int) -> Iterator[Path]:
        path = table_path(store, build, name)
        if name not in before:
            yield from map(Path, files(path, version, None))
            yield from map(Path, log_of(path, version))
            return
        for number in range(before[name] + 1, version + 1):
            yield from files_of_commit(path, number)

    for name, version in after.items():
        found += behind(name, version)
    store.sync(found)
    data = [each for each in found if each.parent.name != LOG_FOLDER and each.name[0] != "."]
    there = {name: known[name] for each in data if (name := sum_name(each)) in known}
    sums = {**there, **new_sums(each for each in data if sum_name(each) not in there)}
    note_whole(store, (str(each) for each in data if sum_name(each) not in there))
    return sums


def _sums_in_bucket(
    store: Store,
    build: str,
    before: Mapping[str, int],
    after: Mapping[str, int],
    known: Sums | None,
) -> Sums:
    found, new = dict[str, Sum](), list[str]()
    for name, version in after.items():
        path = table_path(store, build, name)
        if name not in before:
            there = files(path, version, None)
            if known is None:
                new += there
            else:
                named = map(sum_name, there)
                found |= {each: known[each] for each in named if each in known}
            continue
        for number in range(before[name] + 1, version + 1):
            try:
                added = put_or_read_commit(path, number).added
            except FileNotFoundError as error:
                raise Damaged(
                    f"version {number} of {path} is gone",
                    hint="the job is started again, and takes the version back",
                ) from error
            new += [f"{path}/{each.name}" for each in added]
    return {**found, **sums_in_bucket(store.url, new)}


def vouched_lists(
    store: Store, build: str, last: Frontier | None, versions: Mapping[str, int]
) -> Mapping[str, str]:
    """Returns the checksum of each table's file list, for the frontier that follows `last`.

    The result is by table name. `versions` contains the version of each table in the new frontier.
    If `last` contains an earlier version of a table, the new file list is computed from the file
    list of that version and the later commits. `last` is None before the first frontier. Raises
    Damaged if the file list of an earlier version does not have the checksum that `last` contains,
    or if a commit cannot be read.
    """

    def vouched(name: str) -> str:
        path = table_path(store, build, name)
        if last is not None and last.versions.get(name, versions[name] + 1) <= versions[name]:
            before = list_of(path, last.versions[name], last.file_lists.get(name))
            found = list_of(path, versions[name], None, before)
        else:
            found = list_of(path, versions[name], None)
        note_compared(path, found)
        return found.sum

    return dict(zip(versions, ask_side_by_side(store.url, vouched, versions), strict=True))


def sync_commit(store: Store, path: str, version: int) -> Sums:
    """Waits until a commit of a table and its new files are on the disk.

    Returns the checksums of the new data files. In a bucket there is nothing to wait for. Raises
    Damaged if the commit cannot be read.
    """
    if not store.is_on_disk:
        added = put_or_read_commit(path, version).added
        return sums_in_bucket(store.url, (f"{path}/{each.name}" for each in added))
    new = list(files_of_commit(path, version))
    store.sync(new)
    return new_sums(each for each in new if each.suffix == ".parquet")


def take_back_to_frontier(store: Store, birth: Birth) -> None:
    """Deletes all commits of a build's tables that were made after the newest frontier.

    A table that this frontier does not name is deleted as a whole. In a bucket, files that Spark
    workers have left behind from a slice are deleted too. The caller must hold the build's lock.
    Raises Damaged if a file that the frontier needs has changed since it was written, because a job
    would copy the damaged values into other files.
    """
    newest = Frontiers(store, birth.build).newest()
    versions = {} if newest is None else newest.versions
    taken = 0
    for name in (
        each for table in birth.tables for each in (table.name, *recent_names(table.name))
    ):
        path = table_path(store, birth.build, name)
        forget_lists(path)
        if name in versions:
            assert newest is not None, "it has versions"
            taken += take_back(path, versions[name])
            found = list_of(path, versions[name], newest.file_lists.get(name))
            note_compared(path, found)
            ensure_whole(store, birth.build, found.at(path))
        else:
            delete_folder(path)
    if not store.is_on_disk:
        delete_scratch(store.address(f"{folder_of_build(birth.build)}/slice"))
    if taken:
        write_log_line(
            f"{taken} commits behind the frontier are taken back: their slice is folded again",
            Level.WARN,
        )


def take_back(path: str, version: int) -> int:
    """Deletes the commits of a table after `version`, the newest first.

    Returns the number of deleted commits. While this function runs, no other process may write to
    the table. The data files of the deleted commits remain until maintenance deletes them.
    """
    log = f"{path}/{LOG_FOLDER}"
    names = files_in(log)
    behind = sorted(
        (
            (int(found[1]), name)
            for name in names
            if (found := LOG_FILE.match(name.removeprefix("."))) is not None
            and int(found[1]) > version
        ),
        reverse=True,
    )
    unfinished = [name for name in names if name.endswith(".tmp")]
    for name in [*(name for _, name in behind), *unfinished]:
        failpoint("table.before_take_back")
        delete_file(f"{log}/{name}")
        failpoint("table.after_take_back")
    if LAST_CHECKPOINT in names:
        leads_to = hinted(f"{log}/{LAST_CHECKPOINT}")
        if leads_to is None or leads_to > version:
            delete_file(f"{log}/{LAST_CHECKPOINT}")
    return sum(name.endswith(".json") for _, name in behind)
