"""The scratch folder of `kappa dev`, and the child process whose Spark folds samples.

The module imports little: the child boots while the loop is imported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from kappa.base.scratch import DEV, make_folder
from kappa.base.settings import Settings
from kappa.code.spark_child import one_child


@contextmanager
def scratch_child(settings: Settings) -> Iterator[Path]:
    """Starts a child for the requests of the block. Gives a folder that is deleted at the end."""
    scratch = make_folder(Path(tempfile.gettempdir()), DEV)
    try:
        with one_child(settings_below(settings, scratch), at_once=True):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def has_root(settings: Settings) -> bool:
    """Returns True if a project has a root already. A root in a bucket is taken to be there.

    Opening a store makes the folder of a root.
    """
    return "://" in settings.root_url or Path(settings.root_url).is_dir()


def settings_below(settings: Settings, scratch: Path) -> Settings:
    """Returns a project's settings with a root below the scratch folder."""
    return replace(settings, root=str(scratch / "root"))
