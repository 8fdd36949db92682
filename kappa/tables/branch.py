"""Functions that create a branch's tables from the tables of another build at a frontier.

The branch also copies the log time and the tally of that frontier. Later, the frontier at which the
branch's own code begins to fold is kept, because the proof of the branch starts there.
replay/rollout/plan/branch.py decides at which frontier of the other build a branch may begin.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import Broken, Damaged, KappaError
from kappa.base.failpoint import failpoint
from kappa.state.build import Birth, read_birth, recent_names, table_path
from kappa.state.file_sums import RecordedSums
from kappa.state.files.address import share_file
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import KeptFrontierRecord, kept_frontiers_of, put_kept_frontier
from kappa.state.mark import Mark, origin_mark
from kappa.state.store import Store
from kappa.tables.delta import open_newest, retried
from kappa.tables.durable_versions import sync_versions, vouched_lists
from kappa.tables.stored_table import StoredTable
from kappa.tables.versions import files, log_of

_REPLAY = "kappa replay makes a new build from the log's beginning"


def begin_from(into: Store, birth: Birth, source: Store, frontier: Frontier) -> None:
    """Creates a build's tables with the rows of another build's tables at a frontier.

    Then publishes the new build's first frontier. `into` and `birth` are the store and the birth
    certificate of the new build. `source` is the store of the other build, and `frontier` is a
    frontier of the other build. While this function runs, this frontier must be kept, and no other
    process may know of the new build. Raises Damaged if the other build's tables do not exist (any
    more).
    """
    mark = replace(
        origin_mark(birth.build, frontier.offsets),
        log_time=frontier.log_time,
        tally=frontier.tally,
        witnesses=frontier.witnesses,
    )
    versions = {
        name: adopt(
            table_path(into, birth.build, name),
            table_path(source, frontier.build, name),
            frontier.versions[name],
            frontier.file_lists.get(name),
            mark.of_table(table.name),
        )
        for table in birth.tables
        for name in (table.name, *recent_names(table.name))
        if name in frontier.versions
    }
    # A fault that a file has had since its writing is a fault of its link, too.
    known = RecordedSums(source, frontier.build).all()
    first = Frontier(
        1,
        birth.build,
        1,
        frontier.offsets,
        versions,
        now(),
        log_time=frontier.log_time,
        tally=frontier.tally,
        heard_at=frontier.heard_time,
        witnesses=frontier.witnesses,
        failing=frontier.failing,
        sums=sync_versions(into, birth.build, {}, versions, known=known),
        file_lists=vouched_lists(into, birth.build, None, versions),
    )
    Frontiers(into, birth.build).publish(first)


def keep_base(store: Store, birth: Birth, newest: Frontier) -> None:
    """Makes `newest` a kept frontier if it is the frontier at which a branch's own code begins.

    `birth` is the birth certificate of the build, and `newest` is the build's newest frontier. The
    frontier is kept for as long as the build exists. Does nothing if the branch's own code begins
    at other offsets, if the frontier is kept already, or if the build is not a branch.
    """
    if (
        birth.base is None
        or not newest.offsets.equals(birth.begins)
        or any(
            each.frontier.offsets.equals(birth.begins)
            for each in kept_frontiers_of(store, birth.build)
        )
    ):
        return
    # Readers never saw the frontier, so it is the answer as of no time.
    put_kept_frontier(store, KeptFrontierRecord(newest, stays=True, until=newest.published_at))


def stands_before_base(store: Store, build: str) -> bool:
    """Returns True if a branch has not reached the offsets at which its own code begins.

    Returns False if the build is not a branch. Also returns False if the build's files cannot be
    read: the build's job reports that error.
    """
    try:
        birth, newest = read_birth(store, build), Frontiers(store, build).newest()
    except Damaged:
        return False
    return birth.base is not None and not (
        birth.origin_offsets if newest is None else newest.offsets
    ).covers(birth.begins)


def base_frontier(store: Store, birth: Birth) -> Frontier:
    """Returns the frontier at which a branch's own code begins, as kept by `keep_base`.

    Raises Broken if no such frontier is kept, because the branch has not reached these offsets.
    """
    found = next(
        (
            each.frontier
            for each in kept_frontiers_of(store, birth.build)
            if each.frontier.offsets.equals(birth.begins)
        ),
        None,
    )
    if found is None:
        raise Broken(
            f"build {birth.build} has not come to where its branch begins, at {birth.begins}",
            hint=_REPLAY,
        )
    return found


# Requests to a bucket take milliseconds each.
_AT_ONCE = 8


def adopt(path: str, source: str, version: int, vouched: str | None, mark: Mark) -> int:
    """Creates a table at `path` with the rows of the table at `source` at a version.

    Returns the version of the new table. `mark` is the mark (the metadata) of the new table's
    commit. The new table has the same files, as hard links if the disk supports links: files never
    change, and each table deletes only its own links. The log files from which the version is read
    are linked too. In a bucket, the server copies the files.

    The version must be kept until this function returns. `vouched` is the checksum of the version's
    file list that the frontier contains, or None. Raises Damaged if the version does not exist (any
    more), or if its file list does not have this checksum. Raises KappaError if the files cannot be
    linked or copied, for example because the disk is full.
    """
    failpoint("table.before_adopt")
    # Log files before a new checkpoint may be deleted during the listing and linking.
    retried(lambda: _take_along(path, source, version, vouched))
    made = StoredTable(path, open_newest(path))
    made.commit_nothing(mark, None)
    failpoint("table.after_adopt")
    return made.version


def _take_along(into: str, source: str, version: int, vouched: str | None) -> None:
    names = (*files(source, version, vouched), *log_of(source, version))
    places = [f"{into}{name.removeprefix(source)}" for name in names]
    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="adopt") as threads:
            for _ in threads.map(share_file, names, places):
                pass
    except FileNotFoundError as error:
        raise Damaged(
            f"version {version} of {source} is not whole: {error.filename} is gone",
            hint="a lease may have run out: ask again; if it stays so, kappa scrub names what is "
            "damaged",
        ) from error
    except OSError as error:
        raise KappaError(
            f"version {version} of {source} could not be copied: {error}",
            hint="see whether the disk is full; "
            "on the disk of its root nothing is copied, but linked",
        ) from error
