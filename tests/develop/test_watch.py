"""Tests of the watch for saved files of a project."""

from __future__ import annotations

from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from kappa.develop.loop import ProjectWatch, is_of_project, watched_folders

PROJECT = Path("/home/ann/.own/shop")


@pytest.mark.parametrize(
    ("path", "is_watched"),
    [
        ("pipelines/web.py", True),
        ("kappa.toml", True),
        ("events/visits.ndjson", True),
        ("schemas/deep/visit.json", True),
        ("data/journal/1.json", False),
        ("data", False),
        (".kappa/journal", False),
        ("pipelines/.web.py.swp", False),
        ("pipelines/web.py~", False),
        ("pipelines/#web.py#", False),
        ("pipelines/.#web.py", False),
        ("pipelines/4913", False),
        ("pipelines/web.py___jb_tmp___", False),
        ("events/2026/visits.ndjson", True),
        ("output.log", False),
        ("pipelines/__pycache__/web.pyc", False),
        ("tests/test_web.py", False),
        ("../elsewhere/a.py", False),
        ("", False),
    ],
)
def test_files_that_a_run_depends_on(path: str, is_watched: bool) -> None:
    """A file in a hidden folder within the project is not watched; folders above do not matter."""
    found = Path(*(PROJECT / path).parts) if ".." not in path else PROJECT.parent / "elsewhere/a.py"

    assert is_of_project(found, PROJECT, PROJECT / "data") is is_watched


def test_folders_to_watch(tmp_path: Path) -> None:
    for name in ("pipelines", "events", "env", ".git", "data", "tests", "node_modules"):
        (tmp_path / name).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "kappa.toml").touch()

    assert [each.name for each in watched_folders(tmp_path, tmp_path / "data")] == [
        *("events", "pipelines")
    ]


def test_saves_are_seen_wherever_they_are(tmp_path: Path) -> None:
    """Files may be in an existing folder, in one that appears later, or next to kappa.toml."""
    (tmp_path / "pipelines").mkdir()
    saved = SimpleQueue[list[str]]()
    watch = ProjectWatch(tmp_path, tmp_path / ".kappa", saved.put)

    def save(path: str) -> None:
        """Saves a file repeatedly until that is seen: the watch begins in its own thread."""
        for _ in range(100):
            (tmp_path / path).write_text("x")
            try:
                while path not in saved.get(timeout=0.3):
                    pass
            except Empty:
                continue
            return
        raise AssertionError(path)

    try:
        save("pipelines/web.py")
        save("kappa.toml")
        (tmp_path / "events").mkdir()
        save("events/visits.ndjson")
        (tmp_path / "pipelines" / "web.py").unlink()
        (tmp_path / "pipelines").rmdir()
        (tmp_path / "pipelines").mkdir()
        save("pipelines/web.py")
    finally:
        watch.close()
