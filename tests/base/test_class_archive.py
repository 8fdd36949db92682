"""Laws of making a class archive: once, complete, and without traces of a maker that died."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kappa.base.errors import KappaError
from kappa.base.java.class_archive import ClassArchive

# A program that takes a JVM's options: it notes each call, and writes the file of the archive.
JAVA = """#!/bin/sh
echo called >> "{calls}"
sleep 0.2
for each; do
    case "$each" in -XX:SharedArchiveFile=*) echo archived > "${{each#*=}}" ;; esac
done
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    (tmp_path / "venv").mkdir()
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(calls=tmp_path / "calls"), encoding="utf-8")
    java.chmod(0o755)
    return ClassArchive("broker", "broker.jar", (), str(java))


def test_two_makers_make_an_archive_once(archive: ClassArchive, tmp_path: Path) -> None:
    folder = archive.path.parent
    (folder / "making-broker-killed").mkdir(parents=True)
    (folder / "broker-older.jsa").touch()

    with ThreadPoolExecutor(2) as makers:
        for made in [makers.submit(archive.make) for _ in range(2)]:
            made.result()

    assert (tmp_path / "calls").read_text() == "called\n"
    assert archive.path.read_text() == "archived\n"
    assert sorted(each.name for each in folder.iterdir()) == [archive.path.name, "broker.lock"]


def test_a_folder_that_cannot_be_written(archive: ClassArchive) -> None:
    """An unwritable folder is an error with a sentence, and nobody makes an archive there."""
    assert archive.can_be_made
    # Root may write any folder, but makes none below a file.
    archive.path.parent.touch()

    with pytest.raises(KappaError, match="class archive of broker cannot be written"):
        archive.make()
