"""The commands and snippets of README and docs, run as pasted, in one project.

A ```sh block runs; a ```python block whose first line names a file is that file. What cannot run here
is marked `no-run`, and listed in NOT_RUN with the test that runs it, or why none does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from house import HOUSE
from testbed import Testbed

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1500)]

# In the order in which a reader goes through them; each finds the project as the one before left it.
PAGES = (
    "docs/start/first-ten-minutes.md",
    "docs/howto/change-a-pipeline.md",
    "docs/howto/undo.md",
    "docs/howto/fix-rejects.md",
    "docs/howto/look-back.md",
    "docs/howto/prove.md",
    "docs/howto/branch.md",
    "docs/howto/archive.md",
    "docs/howto/serve.md",
    "docs/howto/windows.md",
    "docs/howto/debug-a-job.md",
    "docs/howto/test-a-pipeline.md",
)
NOT_RUN = {
    "README.md": "a clone and make demo: CI runs make test in a clone, and make demo is a run of its own",
    "docs/start/install.md": "make setup: CI begins with it; pip install: tests/e2e/test_wheel.py",
    "docs/howto/secure.md": "listens on all addresses, which no test may",
}
FENCE = re.compile(
    r"^```(?P<kind>sh|python)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
FILE = re.compile(r"# (?P<path>(?:pipelines|tests)/\w+\.py)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    kind: str
    run: bool
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in FENCE.finditer((HOUSE / page).read_text(encoding="utf-8")):
        yield Block(found["kind"], "no-run" not in found["rest"], found["text"])


def test_what_does_not_run_is_listed() -> None:
    pages = [str(path.relative_to(HOUSE)) for path in HOUSE.glob("docs/*/*.md")]
    shown = {page for page in ["README.md", *pages] if any(b.kind == "sh" for b in blocks(page))}
    marked = {page for page in shown if any(not block.run for block in blocks(page))}

    assert marked == NOT_RUN.keys()
    reference = {page for page in shown if page.startswith(("docs/reference", "docs/explain"))}
    assert shown - reference <= {"README.md", *PAGES, *NOT_RUN}


class Reader:
    """A person who pastes what the pages show, into one shell in one project."""

    def __init__(self, bed: Testbed, programs: Path) -> None:
        self.bed = bed
        self.environment = {
            **bed.environment,
            "PATH": f"{programs}:{bed.environment['PATH']}",
            "COLUMNS": "140",
        }

    def paste(self, page: str) -> str:
        """Does what the page shows, and returns what the screen shows."""
        screen = ""
        for block in blocks(page):
            if block.kind == "python" and (named := FILE.match(block.text)):
                file = self.bed.folder / named["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.kind == "sh" and block.run:
                screen += self._run(page, block.text)
        return screen

    def _run(self, page: str, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.bed.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = f"{page}:\n{text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{said}\n{self.bed.logs()}"
        assert "Traceback" not in done.stderr, said
        return done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `kappa`, as an activated venv has it."""
    kappa = tmp_path / "bin" / "kappa"
    kappa.parent.mkdir()
    kappa.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m cli "$@"\n', encoding="utf-8")
    kappa.chmod(0o755)
    return kappa.parent


def test_the_readme_works_when_pasted(tmp_path: Path, programs: Path) -> None:
    bed = Testbed(tmp_path / "project")
    try:
        Reader(bed, programs).paste("README.md")

        assert bed.state().generation == 3
        bed.must("down")
    finally:
        bed.ensure_gone()


def test_the_pages_work_when_pasted(tmp_path: Path, programs: Path) -> None:
    bed = Testbed(tmp_path / "project", listen="127.0.0.1:8717")
    reader = Reader(bed, programs)
    try:
        screens = {page: reader.paste(page) for page in PAGES}

        # Two visits of "/" and one health check; without it after the change, with it after the undo, and looking back.
        answers = re.findall(
            r"^ *(/\S*) +(\d+) *$", screens["docs/start/first-ten-minutes.md"], re.MULTILINE
        )
        every, without = [("/", "2"), ("/health", "1")], [("/", "2")]
        assert answers == [*every, *without, *every, *without]
        assert "proved" in screens["docs/howto/prove.md"]
        # The reject was mended to a third visit of "/".
        assert '"hits":3' in screens["docs/howto/serve.md"].replace(" ", "")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
            cwd=bed.folder,
            env={**reader.environment, "PYTHONPATH": f"{bed.folder}:{HOUSE}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        bed.must("down")
        assert bed.pids() == []
    finally:
        bed.ensure_gone()
