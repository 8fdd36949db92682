"""The normal form of a statement: equal if a difference decides no row. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kappa.code.imported import Imported, root

# They change nothing in a program: contexts follow from position, `kind` is the u of u"text".
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# Decorators that read no annotations. Any other may (pandas_udf does), so annotations count there.
_BLIND_DECORATORS = frozenset(
    {
        "staticmethod",
        "classmethod",
        "property",
        "functools.cache",
        "functools.lru_cache",
        "functools.wraps",
    }
)
_DECLARES_PIPELINE = frozenset({"kappa.pipeline", "kappa.declare.pipeline.pipeline"})


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement at the top of a module in normal form, and the module's names that it reads."""

    node: ast.stmt
    names: frozenset[str]

    @property
    def text(self) -> str:
        """The normal form as text, equal for programs that differ only in comments and the like.

        Layout and annotations do not count either.
        """
        return repr(_plain(self.node))


def normalized(node: ast.stmt, imports: Mapping[str, list[Imported]]) -> ast.stmt | None:
    """Returns a statement in normal form, or None if nothing of it is left.

    `imports` are the meanings of the module's imported names.
    """
    normal: ast.stmt | None = _Normalizer(imports).visit(node)
    return normal


class _Normalizer(ast.NodeTransformer):
    """A transformer that drops docstrings, lone constants and annotations that nothing reads."""

    def __init__(self, imports: Mapping[str, list[Imported]]) -> None:
        self._imports = imports
        self._in_class = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        outer, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = outer
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        if isinstance(node.value, ast.Constant):
            return None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        self.generic_visit(node)
        if self._in_class:
            # Data classes and the like read them.
            return node
        return (
            None
            if node.value is None
            else ast.Assign([node.target], node.value, lineno=node.lineno)
        )

    def generic_visit(self, node: ast.AST) -> ast.AST:
        visited = super().generic_visit(node)
        # A block must not be empty after its only statement was taken out.
        if (
            isinstance(
                node,
                ast.If
                | ast.For
                | ast.AsyncFor
                | ast.While
                | ast.With
                | ast.AsyncWith
                | ast.Try
                | ast.TryStar
                | ast.ExceptHandler
                | ast.match_case,
            )
            and not node.body
        ):
            node.body = [ast.Pass()]
        return visited

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        outer, self._in_class = self._in_class, False
        # The declaration itself does not count: topics and tables are compared as values.
        node.decorator_list = [
            each for each in node.decorator_list if self._called(each) not in _DECLARES_PIPELINE
        ]
        if all(self._called(each) in _BLIND_DECORATORS for each in node.decorator_list):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        self.generic_visit(node)
        self._in_class = outer
        node.body = node.body or [ast.Pass()]
        return node

    def _called(self, decorator: ast.expr) -> str | None:
        found = root(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if found is None:
            return None
        name, attributes = found
        begins = [str(imported) for imported in self._imports.get(name, [])] or [name]
        return ".".join([begins[-1], *attributes])


def _plain(value: object) -> object:
    # ast.dump prints empty fields differently from one Python version to another.
    if isinstance(value, ast.AST):
        fields = (
            (name, each)
            for name, each in ast.iter_fields(value)
            if name not in _IGNORED_FIELDS and each is not None and each != []
        )
        return (type(value).__name__, *((name, _plain(each)) for name, each in fields))
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return (type(value).__name__, value)
