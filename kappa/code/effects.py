"""The effects of a statement: whether importing its module does more than bind names. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.code.imported import root
from kappa.code.normal_form import Statement


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The project's own names in a module. A call of one on import may change others' values."""

    defines: Mapping[str, tuple[Statement, ...]]
    imported: frozenset[str]

    def does_something(self, node: ast.stmt) -> bool:
        """Returns True if importing runs more of this statement than the binding of a name.

        Decorators and base classes of the project may keep a register. So may a call, unless it is
        to a function of the same module that plainly changes nothing.
        """
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return any(
                    self._is_ours(each) for each in node.decorator_list
                ) or self._calls_a_changer(node)
            case ast.ClassDef():
                return any(
                    self._is_ours(each)
                    for each in (
                        *node.decorator_list,
                        *node.bases,
                        *(keyword.value for keyword in node.keywords),
                    )
                ) or self._calls_a_changer(node)
            case ast.Assign(targets=targets):
                return not all(_binds_names(target) for target in targets) or self._calls_a_changer(
                    node
                )
            case ast.Pass():
                return False
            case ast.Try() | ast.If():
                return any(
                    self.does_something(each) for each in _blocks(node)
                ) or self._calls_a_changer(node)
            case ast.Import() | ast.ImportFrom():
                return False
            case _:
                return True

    def _is_ours(self, node: ast.AST) -> bool:
        while isinstance(node, ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        found = root(node)
        return found is not None and (found[0] in self.defines or found[0] in self.imported)

    def _calls_a_changer(self, node: ast.AST) -> bool:
        return any(
            isinstance(each, ast.Call)
            and self._is_ours(each)
            and self._may_change(each.func, frozenset())
            for each in run_at_import(node)
        )

    def _may_change(self, called: ast.expr, within: frozenset[str]) -> bool:
        if not isinstance(called, ast.Name) or called.id in self.imported:
            return True
        if called.id in within:
            return False
        for statement in self.defines.get(called.id, ()):
            if not isinstance(statement.node, ast.FunctionDef):
                return True
            for each in ast.walk(statement.node):
                if isinstance(each, ast.Global | ast.Nonlocal) or (
                    isinstance(each, ast.Attribute | ast.Subscript)
                    and not isinstance(each.ctx, ast.Load)
                ):
                    return True
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                    return True
                if (
                    isinstance(each, ast.Call)
                    and self._is_ours(each)
                    and self._may_change(each.func, within | {called.id})
                ):
                    return True
        return False


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a statement's nodes, without the bodies of functions, which run later or never."""
    yield node
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inner: list[ast.AST] = [
                *node.decorator_list,
                *node.args.defaults,
                *(each for each in node.args.kw_defaults if each),
            ]
        case ast.Lambda():
            inner = [*node.args.defaults, *(each for each in node.args.kw_defaults if each)]
        case _:
            inner = list(ast.iter_child_nodes(node))
    for each in inner:
        yield from run_at_import(each)


def _binds_names(target: ast.expr) -> bool:
    match target:
        case ast.Name():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_binds_names(part) for part in parts)
        case ast.Starred(value=inner):
            return _binds_names(inner)
        case _:
            return False


def _blocks(node: ast.Try | ast.If) -> Iterator[ast.stmt]:
    yield from node.body
    yield from node.orelse
    if isinstance(node, ast.Try):
        yield from node.finalbody
        for handler in node.handlers:
            yield from handler.body
