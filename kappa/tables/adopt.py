"""A Delta table that begins with the rows of another table, by second names of the files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kappa.base.errors import Damaged, KappaError
from kappa.base.failpoint import failpoint
from kappa.state.files.address import share_file
from kappa.state.mark import Mark
from kappa.tables.delta import open_newest, retried
from kappa.tables.stored_table import StoredTable
from kappa.tables.versions import files, log_of

# Requests to a bucket take milliseconds each.
_AT_ONCE = 8


def adopt(path: str, source: str, version: int, vouched: str | None, mark: Mark) -> int:
    """Makes a table with the rows of another table at a version, and a new mark.

    Returns the version of the new table. The new table has the same files, by hard links if the
    disk supports links: files never change, and each table deletes its own names of the files. The
    log is linked too, from the version's checkpoint on. In a bucket the server copies the files.
    The version must be kept until this function returns. Raises Damaged if the version does not
    exist (any more), or if the frontier has not `vouched` for the version's files, and KappaError
    if the disk has no room.
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
