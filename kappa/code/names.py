"""Names that the files of `pipelines/` declare, read from the text: no file is imported.

A shell asks for names at each TAB, and an import of the user's code may take seconds. A name that
the code computes is not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_DECLARED = {"Topic": "topic", "Table": "table", "View": "table", "Sink": "topic", "Alert": "alert"}


def declared_names(project: Path) -> set[tuple[str, str]]:
    """Returns (kind, name) of each pipeline, table, topic and alert that the files declare.

    A view counts as a table, and a sink as its topic. A file that cannot be parsed has no names.
    """
    found: set[tuple[str, str]] = set()
    for path in sorted((project / "pipelines").glob("*.py")):
        try:
            found.update(_names_in(ast.parse(path.read_bytes())))
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
    return found


def _names_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=str(name)), *_]) if (
                kind in _DECLARED
            ):
                yield _DECLARED[kind], name
            case ast.FunctionDef(name=name, decorator_list=decorators):
                for each in decorators:
                    match each:
                        case ast.Call(func=ast.Name(id="pipeline"), keywords=keywords):
                            yield "pipeline", next(_named(keywords), name)


def _named(keywords: list[ast.keyword]) -> Iterator[str]:
    for each in keywords:
        match each:
            case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                yield name
