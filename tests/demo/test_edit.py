"""Laws of the story's edit: it fits the tree's pipeline, and version 2 is a valid declaration."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from house import HOUSE

from demo.edit import difference, edited
from kappa.base.errors import KappaError
from kappa.declare.pipeline import Pipeline

FILE = HOUSE / "pipelines" / "flights.py"


def declared(file: Path) -> Pipeline:
    found = runpy.run_path(str(file))["flights"]
    assert isinstance(found, Pipeline)
    return found


def test_version_2_has_one_more_column_and_nothing_else_is_new(tmp_path: Path) -> None:
    second = tmp_path / "flights.py"
    second.write_text(edited(FILE.read_text(encoding="utf-8")), encoding="utf-8")

    before, after = declared(FILE), declared(second)

    assert set(after.tables[0].fold) - set(before.tables[0].fold) == {"cancelled"}
    assert before.tables[1:] == after.tables[1:]
    assert before.topics == after.topics
    assert before.views == after.views


def test_a_file_that_the_story_does_not_know_is_refused() -> None:
    with pytest.raises(KappaError, match="is not the file the demo knows"):
        edited(edited(FILE.read_text(encoding="utf-8")))


def test_the_difference_shows_old_and_new_lines() -> None:
    assert difference("a\nb\n", "a\nc\n", "f.py").splitlines()[1:] == ["-b", "+c"]
