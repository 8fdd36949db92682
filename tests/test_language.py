"""The cheap rules of our language: first lines and their openings."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
FILES = [
    HOUSE / name
    for name in subprocess.run(
        ["git", "ls-files", "*.py"], cwd=HOUSE, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if not name.startswith("tests/data/") and (HOUSE / name).exists()
]
FIRST_LINE = 90
# Openings of first lines that name nothing: the subject is the thing itself.
NAMELESS = re.compile(r"(What|Who|How|Where|When|Says|Tells)\b")
VERB = re.compile(r"[A-Z][a-z]*s\b")


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(HOUSE)}:{line}"


@cache
def _first_lines() -> list[tuple[Path, ast.AST, str, str]]:
    """Returns file, node, place and first line of each docstring."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    place = _place(path, getattr(node, "lineno", 1))
                    found.append((path, node, place, text.splitlines()[0]))
    return found


def test_a_first_line_is_short() -> None:
    long = [(place, line) for _, _, place, line in _first_lines() if len(line) > FIRST_LINE]

    assert long == []


def test_a_first_line_names_its_subject() -> None:
    assert [(place, line) for _, _, place, line in _first_lines() if NAMELESS.match(line)] == []


def test_a_functions_first_line_begins_with_its_verb() -> None:
    """Properties are named as values, commands give orders, tests and `__init__` have notes."""

    def is_free(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        return (
            path.relative_to(HOUSE).parts[0] in ("tests", "commands")
            or node.name == "__init__"
            or any("property" in ast.unparse(each) for each in node.decorator_list)
        )

    assert [
        (place, line)
        for path, node, place, line in _first_lines()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not is_free(path, node)
        and not VERB.match(line)
    ] == []
