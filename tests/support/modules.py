"""The parts of a Python file that our rules are about: docstrings, imports, classes.

Each file is parsed once per process, and its tree is not kept: with hundreds of trees, garbage
collection takes twice as long as the parsing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Half of a file's nodes are expressions: they hold no statement, so no docstring and no import.
_HOLDING = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Documented:
    """The docstring of a module, a class or a function; `decorators` are the source texts."""

    name: str
    line: int
    text: str
    is_function: bool
    decorators: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """The parts of a file.

    `running` are the imports without those that only type annotations need. `classes` does not
    include inner classes.
    """

    docstring: str
    documented: tuple[Documented, ...]
    imports: tuple[str, ...]
    running: tuple[str, ...]
    classes: tuple[str, ...]


@cache
def read(path: Path) -> Module:
    """Returns the parts of a Python file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Module(
        ast.get_docstring(tree) or "",
        tuple(_documented(tree)),
        tuple(_imports(tree, running=False)),
        tuple(_imports(tree, running=True)),
        tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
    )


def _documented(tree: ast.Module) -> Iterator[Documented]:
    for node in _statements(tree, running=False):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield Documented(
                getattr(node, "name", ""),
                getattr(node, "lineno", 1),
                text,
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef),
                tuple(ast.unparse(each) for each in getattr(node, "decorator_list", ())),
            )


def _imports(tree: ast.Module, *, running: bool) -> Iterator[str]:
    for node in _statements(tree, running=running):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)


def _statements(tree: ast.Module, *, running: bool) -> list[ast.AST]:
    found: list[ast.AST] = [tree]
    for node in found:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise) if running:
                found += otherwise
            case _:
                for field in _HOLDING:
                    held = getattr(node, field, None)
                    # The body of a lambda or of an `if` within a line is an expression.
                    if isinstance(held, list):
                        found += held
    return found
