"""The cheap rules of our language: first lines, openings, names of tests, widths of pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from modules import Documented, read

HOUSE = Path(__file__).resolve().parent.parent
FILES = [
    HOUSE / name
    for name in subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=HOUSE, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if not name.startswith("tests/data/") and (HOUSE / name).exists()
]
PROGRAMS = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]
FIRST_LINE = 90
TEST_NAME = 80
WIDTH = 100
# Openings of first lines that name nothing: the subject is the thing itself.
NAMELESS = re.compile(r"(What|Who|How|Where|When|Says|Tells)\b")
VERB = re.compile(r"[A-Z][a-z]*s\b")


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(HOUSE)}:{line}"


def _first_lines() -> Iterator[tuple[Path, Documented, str, str]]:
    """Yields file, owner, place and first line of each docstring."""
    for path in PROGRAMS:
        for each in read(path).documented:
            yield path, each, _place(path, each.line), each.text.splitlines()[0]


def test_a_first_line_is_short() -> None:
    long = [(place, line) for _, _, place, line in _first_lines() if len(line) > FIRST_LINE]

    assert long == []


def test_a_first_line_names_its_subject() -> None:
    assert [(place, line) for _, _, place, line in _first_lines() if NAMELESS.match(line)] == []


def test_a_functions_first_line_begins_with_its_verb() -> None:
    """Properties are named as values, commands give orders, tests and `__init__` have notes."""

    def is_free(path: Path, each: Documented) -> bool:
        return (
            path.relative_to(HOUSE).parts[0] in ("tests", "commands")
            or each.name == "__init__"
            or any("property" in decorator for decorator in each.decorators)
        )

    assert [
        (place, line)
        for path, each, place, line in _first_lines()
        if each.is_function and not is_free(path, each) and not VERB.match(line)
    ] == []


def test_the_name_of_a_test_is_short() -> None:
    names = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)

    assert [
        (str(path.relative_to(HOUSE)), name)
        for path in PROGRAMS
        for name in names.findall(path.read_text(encoding="utf-8"))
        if len(name) > TEST_NAME
    ] == []


def test_pages_are_100_wide_beside_tables_and_code() -> None:
    wide = []
    for path in PAGES:
        in_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            in_code ^= line.lstrip().startswith("```")
            if not in_code and not line.lstrip().startswith(("|", "![")) and len(line) > WIDTH:
                wide.append(_place(path, number))

    assert wide == []
