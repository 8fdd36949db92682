"""The simple rules of our language: the first words of docstrings, and the width of pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from modules import Documented, read
from programs import run_program

HOUSE = Path(__file__).resolve().parent.parent
FILES = [
    HOUSE / name
    for name in run_program(
        "git", "ls-files", "*.py", "*.md", folder=HOUSE, check=True
    ).stdout.splitlines()
    if not name.startswith("tests/data/") and (HOUSE / name).exists()
]
PROGRAMS = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]
WIDTH = 100
# Openings of first lines that name nothing: the subject is the thing itself.
NAMELESS = re.compile(r"(What|Who|How|Where|When|Says|Tells)\b")


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(HOUSE)}:{line}"


def _first_lines() -> Iterator[tuple[Path, Documented, str, str]]:
    """Yields file, owner, place and first line of each docstring."""
    for path in PROGRAMS:
        for each in read(path).documented:
            yield path, each, _place(path, each.line), each.text.splitlines()[0]


def test_a_first_line_names_its_subject() -> None:
    assert [(place, line) for _, _, place, line in _first_lines() if NAMELESS.match(line)] == []


def test_pages_are_100_wide_beside_tables_and_code() -> None:
    wide = []
    for path in PAGES:
        in_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            in_code ^= line.lstrip().startswith("```")
            if not in_code and not line.lstrip().startswith(("|", "![")) and len(line) > WIDTH:
                wide.append(_place(path, number))

    assert wide == []
