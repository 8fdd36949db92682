"""Finds all mistakes in the declarations of a file. An import would end at the first mistake.

This module runs the statements at the top level of the file one by one. It skips a statement that
uses a name which a wrong statement should have declared, since such a statement would only repeat
the mistake. Within a wrong statement, it tries each declaration separately. After the first
mistake, it runs only imports, definitions, declarations and constants, because an import would not
have run the later statements.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.code.misuse_errors import explained_misuse

_DECLARATIONS = frozenset({"Topic", "Table", "View", "Sink", "Alert"})


def mistakes_in(file: Path) -> tuple[DeclarationError, ...]:
    """Returns the mistakes in the declarations of a file, in the order of their lines.

    Call this function after an import of the file has failed because of a wrong declaration.
    """
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError):
        return ()
    package = file.parent.name
    space: dict[str, Any] = {
        "__name__": f"{package}.{file.stem}",
        "__package__": package,
        "__file__": str(file),
    }
    found: list[DeclarationError] = []
    wrong: set[str] = set()
    with contextlib.redirect_stdout(sys.stderr):
        for statement in tree.body:
            if wrong & _names_used(statement) or (found and not _is_safe(statement)):
                wrong |= _names_bound(statement)
                continue
            module = ast.Module([statement], [])
            try:
                exec(compile(module, str(file), "exec", dont_inherit=True), space)  # noqa: S102  # as the import did
            except DeclarationError as error:
                found += [error, *_mistakes_within(statement, str(file), space)]
                wrong |= _names_bound(statement)
            except (Exception, SystemExit) as error:  # noqa: BLE001  # it may need what is missing
                misused = explained_misuse(error, f"{file}:{_line_in(error, file)}")
                if misused is not None:
                    found += [misused, *_mistakes_within(statement, str(file), space)]
                wrong |= _names_bound(statement)
    return tuple(found)


def _mistakes_within(
    statement: ast.stmt, file: str, space: dict[str, Any]
) -> Iterator[DeclarationError]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _called_name(node) in _DECLARATIONS:
            code = compile(ast.Expression(node), file, "eval", dont_inherit=True)
            try:
                eval(code, space)  # noqa: S307  # as the import did
            except DeclarationError as error:
                yield error
            except TypeError as error:
                misused = explained_misuse(error, f"{file}:{node.lineno}")
                if misused is not None:
                    yield misused
            except (Exception, SystemExit):  # noqa: BLE001, S112  # it needs what is local
                continue


def _line_in(error: BaseException, file: Path) -> int:
    """Returns the number of the line in `file` at which an error was raised.

    The line comes from the innermost frame in `file` of the error's traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return next(each.lineno or 1 for each in reversed(frames) if each.filename == str(file))


def _is_safe(statement: ast.stmt) -> bool:
    """Returns True if a statement is an import, a definition, a declaration or a constant."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef():
            return True
        case ast.Assign() | ast.AnnAssign():
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
            return not calls or any(_called_name(call) in _DECLARATIONS for call in calls)
        case _:
            return False


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _names_used(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _names_bound(statement: ast.stmt) -> set[str]:
    """Returns the names to which a top-level statement of a file would assign values."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
