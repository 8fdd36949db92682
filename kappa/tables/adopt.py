"""A Delta table that begins with the rows of another, by hard links to its files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kappa.base.errors import Damaged, KappaError
from kappa.base.failpoint import failpoint
from kappa.state.mark import Mark
from kappa.tables.delta import LOG_FOLDER, open_newest, retried
from kappa.tables.stored_table import StoredTable
from kappa.tables.versions import files, log_of


def adopt(path: str, source: str, version: int, mark: Mark) -> int:
    """Makes a table with the rows of another at a version, and a mark of its own.

    Returns the version of the new table. It has the same files, by hard links if the disk has them:
    they never change, and each table deletes its own names of them. The log is linked too, from the
    version's checkpoint on. The version must be kept meanwhile. Raises Damaged if it does not exist
    (any more), and KappaError if the disk has no room.
    """
    failpoint("table.before_adopt")
    # Log files before a new checkpoint may be deleted while they are listed and linked.
    retried(lambda: _take_along(Path(path), source, version))
    made = StoredTable(path, open_newest(path))
    made.commit_nothing(mark, None)
    failpoint("table.after_adopt")
    return made.version


def _take_along(into: Path, source: str, version: int) -> None:
    names, log = files(source, version), log_of(source, version)
    (into / LOG_FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        for name in names:
            link_file(Path(name), into / Path(name).name)
        for file in log:
            link_file(file, into / LOG_FOLDER / file.name)
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
