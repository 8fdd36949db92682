"""The scratch folder of `kappa dev`, and the child process whose Spark folds samples.

This module imports few other modules, so that the child can start while this process imports the
modules of the loop.
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
    """Starts a child process with Spark, and yields a new scratch folder.

    Within the block, the child folds samples of topics. After the block, the child ends and the
    folder is deleted.
    """
    scratch = make_folder(Path(tempfile.gettempdir()), DEV)
    try:
        with one_child(settings_below(settings, scratch), at_once=True):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def has_root(settings: Settings) -> bool:
    """Returns True if the root of a project exists. A root in a bucket is assumed to exist.

    This function does not open the root, because opening would create the folder of the root.
    """
    return "://" in settings.root_url or Path(settings.root_url).is_dir()


def settings_below(settings: Settings, scratch: Path) -> Settings:
    """Returns a project's settings with a root inside the scratch folder."""
    return replace(settings, root=str(scratch / "root"))
