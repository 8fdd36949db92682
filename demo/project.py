"""Creates the project of a run: its folder, its files, and the environment of all processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from demo.processes.family import MARK

_TREE = Path(__file__).resolve().parent.parent
# Beside this file, links to pipelines/flights.py and boards/flights.toml of the tree: a wheel has
# them too.
_FIRST_VERSION = Path(__file__).with_name("flights.py.txt")
_BOARD = Path(__file__).with_name("flights.toml")
# Slices small enough to show the replay's progress, and patience on a busy machine.
# The build that is kept for an undo folds all at once, not in turns: the reckoning is of both.
_SETTINGS = """\
engine.slice_records = 150000
engine.rest_after = 0
rollout.hold_attempts = 6
"""


class Project:
    """The project of a run: its folder, its files, and the folder of the witnesses' records."""

    def __init__(self, run: Path) -> None:
        """Creates the project's folders in the empty folder `run`."""
        self.mark = run.name
        self.folder = run / "project"
        self.records = run / "records"
        self.file = self.folder / "pipelines" / "flights.py"
        for folder in (self.file.parent, self.folder / "boards", self.records):
            folder.mkdir(parents=True)

    def write(self, settings: str = "") -> None:
        """Writes version 1 of the pipeline, its board and the settings.

        `settings` contains additional lines of kappa.toml.
        """
        (self.folder / "kappa.toml").write_text(_SETTINGS + settings, encoding="utf-8")
        shutil.copy(_FIRST_VERSION, self.file)
        shutil.copy(_BOARD, self.folder / "boards" / "flights.toml")

    def environment(self, *, is_terminal: bool) -> Mapping[str, str]:
        """Returns the environment of the run's processes, with the mark that identifies them."""
        return {
            **os.environ,
            MARK: self.mark,
            "KAPPA_BY": "demo",
            "PYTHONPATH": os.pathsep.join(
                [str(_TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            # Without a terminal, tables would be squeezed into 80 columns.
            **({} if is_terminal else {"COLUMNS": "140"}),
        }
