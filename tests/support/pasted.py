"""The commands and snippets that a page shows, and a person who pastes them into a project."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from house import HOUSE
from testbed import Testbed

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


class Reader:
    """A person who pastes what the pages show into one shell in one project.

    The project's typist, if there is one, may act as the `kappa` among the programs (typed.py).
    """

    def __init__(self, bed: Testbed, programs: Path, at: Path | None = None) -> None:
        """Begins in the folder `at`, or in the project; `cd` changes the folder."""
        self.bed = bed
        self.at = at or bed.folder
        self._inherited = (
            [] if bed.typist is None else [bed.typist.end(bed.environment["PYTHONPATH"]).fileno()]
        )
        self.environment = {
            **bed.environment,
            "PATH": f"{programs}:{bed.environment['PATH']}",
            "COLUMNS": "140",
            "TYPIST": "".join(map(str, self._inherited)),
        }

    def paste(self, page: str) -> str:
        """Writes the files and runs the commands of a page, and returns the output."""
        screen = ""
        for block in blocks(page):
            if block.kind == "python" and (named := FILE.match(block.text)):
                file = self.at / named["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.kind == "sh" and block.run:
                screen += self.type_in(block.text, page)
        return screen

    def type_in(self, text: str, page: str = "typed") -> str:
        """Runs commands in the shell, and returns the output."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as place:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f'{text}\npwd > "{place.name}"'],
                cwd=self.at,
                env=self.environment,
                pass_fds=self._inherited,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            said = f"{page}:\n{text}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, f"{said}\n{self.bed.logs()}"
            assert "Traceback" not in done.stderr, said
            self.at = Path(place.read().rstrip("\n"))
        return done.stdout
