"""The cheap rules of our language: first lines, openings, names of tests, widths of pages."""

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
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)
VERB = re.compile(r"[A-Z][a-z]*s\b")


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(HOUSE)}:{line}"


@cache
def _first_lines() -> list[tuple[Path, ast.AST, str, str]]:
    """Returns file, node, place and first line of each docstring."""
    found = []
    for path in PROGRAMS:
        pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while pending:
            node = pending.pop()
            # Half of a file's nodes are expressions, which hold no docstring.
            pending += [each for each in ast.iter_child_nodes(node) if isinstance(each, _HOLDERS)]
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
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
