"""A module's source, taken apart into statements, names and imports.

It shows which statement binds which name, what each import means, and which statements do something
on mere import. Pure and static: nothing is run.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Mapping
from dataclasses import dataclass

from kappa.code.effects import OwnNames, run_at_import
from kappa.code.imported import Imported, imported_by, parents, root
from kappa.code.normal_form import Statement, normalized
from kappa.code.sources import Find, SourceFile


@dataclass(frozen=True, slots=True)
class Module:
    """A module taken apart.

    `defines` has the statements that bind each name, in order. `imports` has the meanings of the
    names that plain imports bind. `effects` are the statements that do something on import.
    `stars` are the modules of which all names are imported. `loads` are the modules that importing
    this one imports.
    """

    source: SourceFile
    statements: tuple[Statement, ...]
    defines: Mapping[str, tuple[Statement, ...]]
    imports: Mapping[str, tuple[Imported, ...]]
    effects: tuple[Statement, ...]
    stars: tuple[str, ...]
    loads: tuple[str, ...]


def scan(source: SourceFile, find: Find) -> Module:
    """Takes a module apart.

    The source must be Python that compiles; `find` decides which imports are the project's own.
    """
    tree = _parse(source)
    imports: dict[str, list[Imported]] = {}
    stars: list[str] = []
    loads: list[str] = []
    others: list[ast.stmt] = []
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            others.append(node)
            continue
        for alias, imported in imported_by(node, source, find):
            loads.extend(_executed(imported, find))
            if alias == "*":
                stars.append(imported.module)
            else:
                imports.setdefault(alias, []).append(imported)
    normal = (normalized(node, imports) for node in others)
    nodes = [node for node in normal if node is not None]
    bound = [_bound_by(node, source, find) for node in nodes]
    here = frozenset().union(imports, *bound)
    statements = tuple(Statement(node, _names(node, here)) for node in nodes)
    defines: dict[str, list[Statement]] = {}
    for statement, names in zip(statements, bound, strict=True):
        for name in names:
            defines.setdefault(name, []).append(statement)
    known = {name: tuple(found) for name, found in defines.items()}
    ours = OwnNames(
        known,
        frozenset(
            name for name, found in imports.items() if any(find(each.module) for each in found)
        ),
    )
    effects = tuple(statement for statement in statements if ours.does_something(statement.node))
    return Module(
        source,
        statements,
        known,
        {name: tuple(found) for name, found in imports.items()},
        effects,
        tuple(stars),
        tuple(dict.fromkeys(loads)),
    )


def _parse(source: SourceFile) -> ast.Module:
    tree = ast.parse(source.content, filename=source.path)
    body: list[ast.stmt] = []
    for node in tree.body:
        guarded = _unless_typing_or_main(node)
        body.extend(
            each
            for each in guarded
            if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")
        )
    tree.body = body
    return tree


def _unless_typing_or_main(node: ast.stmt) -> list[ast.stmt]:
    # In an imported module, the bodies of `if TYPE_CHECKING:` and `if __name__ == "__main__":`
    # never run, but their else does.
    if isinstance(node, ast.If):
        test = root(node.test)
        is_typing = test is not None and (test[1] or (test[0],))[-1] == "TYPE_CHECKING"
        is_main = (
            isinstance(node.test, ast.Compare)
            and root(node.test.left) == ("__name__", ())
            and isinstance(node.test.ops[0], ast.Eq)
        )
        if is_typing or is_main:
            return node.orelse
    return [node]


def _names(node: ast.stmt, here: frozenset[str]) -> frozenset[str]:
    """Returns the module's names that a statement reads, at any depth.

    Python's own rules of scope decide. `here` are the names that the module binds.
    """
    found: set[str] = set()
    tables = [symtable.symtable(ast.unparse(ast.Module([node], [])), "<statement>", "exec")]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_declared_global() or (
                symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
            ):
                found.add(name)
            elif (
                symbol.is_referenced()
                and table.get_type() == "class"
                and not symbol.is_free()
                and name in here
            ):
                # A class body reads a name from the module until it has bound the name itself.
                found.add(name)
    return frozenset(found)


def _bound_by(node: ast.stmt, source: SourceFile, find: Find) -> set[str]:
    """Returns the names that a statement binds in its module, in any branch of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    bound: set[str] = set()
    for each in run_at_import(node):
        match each:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                bound.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                bound.add(name)
            case ast.Import() | ast.ImportFrom():
                bound |= {alias for alias, _ in imported_by(each, source, find)}
            case _:
                pass
    return bound


def _executed(imported: Imported, find: Find) -> list[str]:
    return [module for module in parents(imported.module) if find(module) is not None]
