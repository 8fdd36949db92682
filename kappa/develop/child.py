"""The scratch folder of `kappa dev`, and the child process whose Spark folds samples.

This module imports little, so that the child can start while the modules of the loop are imported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from kappa.base.settings import Settings
from kappa.base.temporary_folders import DEV, make_folder
from kappa.code.spark_child import one_child


@contextmanager
def scratch_child(settings: Settings) -> Iterator[Path]:
    """Starts the child process that folds samples, and yields a scratch folder.

    The child process folds samples while the block runs. The folder is deleted after the block.
    """
    scratch = make_folder(Path(tempfile.gettempdir()), DEV)
    try:
        with one_child(settings_below(settings, scratch), at_once=True):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def has_root(settings: Settings) -> bool:
    """Returns True if the root of a project exists. A root in a bucket is assumed to exist.

    The store is not opened, because that would create the folder of a root.
    """
    return "://" in settings.root_url or Path(settings.root_url).is_dir()


def settings_below(settings: Settings, scratch: Path) -> Settings:
    """Returns a project's settings with a root inside the scratch folder."""
    return replace(settings, root=str(scratch / "root"))
