"""The source of a module, split into statements, names and imports.

The scan finds which statement binds which name, what each imported name means, and which statements
have an effect when the module is imported. Statements are in normal form: differences that cannot
affect rows are removed. The scan only reads the source, and runs nothing.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.code.sources import Find, SourceFile

# These change nothing in a program: contexts follow from position, `kind` is the u of u"text".
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# Decorators that read no annotations. Others may (pandas_udf does): there annotations count.
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
class Imported:
    """The meaning of an imported name: a module, or a name in a module.

    `name` is None if the meaning is the module itself.
    """

    module: str
    name: str | None = None

    def __str__(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


def imported_by(
    node: ast.Import | ast.ImportFrom, source: SourceFile, find: Find
) -> Iterator[tuple[str, Imported]]:
    """Yields a pair for each name that an import statement binds: the name, and its meaning.

    The name is `*` for an import of all names. `find` returns the file of a project's module.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            # `import a.b` binds a; `import a.b as c` binds a.b itself.
            yield (
                (alias.asname, Imported(alias.name))
                if alias.asname
                else (alias.name.partition(".")[0], Imported(alias.name.partition(".")[0]))
            )
            if not alias.asname and "." in alias.name:
                yield alias.name, Imported(alias.name)
        return
    base = absolute_name(node.module or "", node.level, source)
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        found = (
            Imported(submodule)
            if alias.name != "*" and find(submodule) is not None
            else Imported(base, None if alias.name == "*" else alias.name)
        )
        yield alias.asname or alias.name, found


def absolute_name(module: str, level: int, source: SourceFile) -> str:
    """Returns the full name of a module that `source` imports by a relative name.

    `level` is the number of dots before the relative name; 0 means that the name is absolute.
    """
    if level == 0:
        return module
    package = source.module.split(".") if source.is_package else source.module.split(".")[:-1]
    kept = package[: len(package) - (level - 1)]
    return ".".join([*kept, module] if module else kept)


def module_parents(module: str) -> Iterator[str]:
    """Yields the names of the packages that contain a module, the outermost first.

    The last name is that of the module itself.
    """
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        yield ".".join(parts[:depth])


def expression_root(node: ast.AST) -> tuple[str, tuple[str, ...]] | None:
    """Returns the name at the beginning of a dotted expression, and the attributes after it.

    Returns None if the expression does not begin with a name.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, tuple(reversed(attributes))) if isinstance(node, ast.Name) else None


@dataclass(frozen=True, slots=True)
class Statement:
    """A top-level statement of a module, without the differences that cannot affect rows.

    `names` are the names of the module that the statement reads.
    """

    node: ast.stmt
    names: frozenset[str]

    @property
    def text(self) -> str:
        """Returns the statement in normal form, as text.

        Statements that differ only in comments, layout or annotations have the same text.
        """
        return repr(_plain_form(self.node))


def normalized_statement(node: ast.stmt, imports: Mapping[str, list[Imported]]) -> ast.stmt | None:
    """Converts a statement to normal form: removes the differences that cannot affect rows.

    Returns None if nothing is left of the statement. `imports` contains the meanings of the names
    that the module imports.
    """
    normal: ast.stmt | None = _Normalizer(imports).visit(node)
    return normal


class _Normalizer(ast.NodeTransformer):
    """A transformer that removes the parts of statements that cannot affect rows.

    These are docstrings, statements that consist only of a constant, and annotations that no code
    reads.
    """

    def __init__(self, imports: Mapping[str, list[Imported]]) -> None:
        self._imports = imports
        self._in_class = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return self._normalize_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return self._normalize_function(node)

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
            # Data classes and the like read annotations.
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

    def _normalize_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        outer, self._in_class = self._in_class, False
        # The declaration itself does not count: topics and tables are compared as values.
        node.decorator_list = [
            each
            for each in node.decorator_list
            if self._called_name(each) not in _DECLARES_PIPELINE
        ]
        if all(self._called_name(each) in _BLIND_DECORATORS for each in node.decorator_list):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        self.generic_visit(node)
        self._in_class = outer
        node.body = node.body or [ast.Pass()]
        return node

    def _called_name(self, decorator: ast.expr) -> str | None:
        found = expression_root(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if found is None:
            return None
        name, attributes = found
        begins = [str(imported) for imported in self._imports.get(name, [])] or [name]
        return ".".join([begins[-1], *attributes])


def _plain_form(value: object) -> object:
    # ast.dump prints empty fields differently from one Python version to another.
    if isinstance(value, ast.AST):
        fields = (
            (name, each)
            for name, each in ast.iter_fields(value)
            if name not in _IGNORED_FIELDS and each is not None and each != []
        )
        return (type(value).__name__, *((name, _plain_form(each)) for name, each in fields))
    if isinstance(value, list):
        return [_plain_form(each) for each in value]
    return (type(value).__name__, value)


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names in a module that refer to the project's own code.

    A call of this code while the module is imported may change values.
    """

    defines: Mapping[str, tuple[Statement, ...]]
    imported: frozenset[str]

    def does_something(self, node: ast.stmt) -> bool:
        """Returns True if importing this statement may do more than bind names.

        A decorator or a base class of the project may register something. A call of the project's
        code may have an effect too, unless the called function is in the same module and clearly
        changes nothing.
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
                    self.does_something(each) for each in _inner_statements(node)
                ) or self._calls_a_changer(node)
            case ast.Import() | ast.ImportFrom():
                return False
            case _:
                return True

    def _is_ours(self, node: ast.AST) -> bool:
        while isinstance(node, ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        found = expression_root(node)
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
    """Yields the nodes of a statement that an import runs: all except the bodies of functions."""
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


def _inner_statements(node: ast.Try | ast.If) -> Iterator[ast.stmt]:
    yield from node.body
    yield from node.orelse
    if isinstance(node, ast.Try):
        yield from node.finalbody
        for handler in node.handlers:
            yield from handler.body


@dataclass(frozen=True, slots=True)
class ScannedModule:
    """The statements, names and imports of a module.

    `defines` maps each name to the statements that bind the name, in order. `imports` maps each
    imported name to its meanings. `effects` contains the statements that do more than bind names
    when the module is imported. `stars` contains the modules from which all names are imported.
    `loads` contains the modules of the project that Python loads when this module is imported.
    """

    source: SourceFile
    statements: tuple[Statement, ...]
    defines: Mapping[str, tuple[Statement, ...]]
    imports: Mapping[str, tuple[Imported, ...]]
    effects: tuple[Statement, ...]
    stars: tuple[str, ...]
    loads: tuple[str, ...]


def scan_module(source: SourceFile, find: Find) -> ScannedModule:
    """Splits a module into statements, names and imports.

    `find` returns the file of a module of the project, and None for all other modules. Raises
    SyntaxError if the source is not valid Python.
    """
    tree = _parse_source(source)
    imports: dict[str, list[Imported]] = {}
    stars: list[str] = []
    loads: list[str] = []
    others: list[ast.stmt] = []
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            others.append(node)
            continue
        for alias, imported in imported_by(node, source, find):
            loads.extend(_imported_modules(imported, find))
            if alias == "*":
                stars.append(imported.module)
            else:
                imports.setdefault(alias, []).append(imported)
    normal = (normalized_statement(node, imports) for node in others)
    nodes = [node for node in normal if node is not None]
    bound = [_bound_by(node, source, find) for node in nodes]
    here = frozenset().union(imports, *bound)
    statements = tuple(Statement(node, _names_read(node, here)) for node in nodes)
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
    return ScannedModule(
        source,
        statements,
        known,
        {name: tuple(found) for name, found in imports.items()},
        effects,
        tuple(stars),
        tuple(dict.fromkeys(loads)),
    )


def _parse_source(source: SourceFile) -> ast.Module:
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
        test = expression_root(node.test)
        is_typing = test is not None and (test[1] or (test[0],))[-1] == "TYPE_CHECKING"
        is_main = (
            isinstance(node.test, ast.Compare)
            and expression_root(node.test.left) == ("__name__", ())
            and isinstance(node.test.ops[0], ast.Eq)
        )
        if is_typing or is_main:
            return node.orelse
    return [node]


def _names_read(node: ast.stmt, here: frozenset[str]) -> frozenset[str]:
    """Returns the names of the module that a statement reads, including its inner statements.

    Python's own rules of scope apply. `here` contains the names that the module binds.
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
    """Returns the names of the module that a statement may bind, in any branch of the statement."""
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


def _imported_modules(imported: Imported, find: Find) -> list[str]:
    return [module for module in module_parents(imported.module) if find(module) is not None]
