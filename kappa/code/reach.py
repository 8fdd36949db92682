"""Finds the code that affects a pipeline's rows: all that its function reaches.

A search follows names from module to module. It only reads the code, and runs nothing. If the code
does not show which names of a module are reached, the whole module counts. If the code does not
even show which module is imported (an import by a computed name), the search raises a
DeclarationError, because no code snapshot could be made. The search cannot see the files,
environment variables and network connections that the code uses at run time; so a pipeline's
function must be pure.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

from kappa.base.errors import DeclarationError
from kappa.code.scan import (
    Imported,
    ScannedModule,
    Statement,
    expression_root,
    imported_by,
    module_parents,
    scan_module,
)
from kappa.code.sources import Find, SourceFile

_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__path__", "__annotations__", "__builtins__"}
# With these, any name of the module may be read or bound.
_READS_ANYTHING = frozenset({"exec", "eval", "globals", "vars", "locals"})
_IMPORTS_BY_NAME = frozenset({"import_module", "__import__"})


def reached_parts(module: str, attribute: str, find: Find) -> Mapping[str, str]:
    """Returns the parts of the project's code that `attribute` of `module` reaches.

    A key is the name of a part, such as `function pipelines/flights.py:on_time`. A value is the
    text of the part, without the differences that cannot affect rows. Raises DeclarationError, with
    the line, if the code imports a module by a computed name.
    """
    walk = _CodeWalk(find)
    walk.name(module, attribute)
    return walk.parts


def reached_statements(
    module: str, attribute: str, find: Find
) -> tuple[tuple[ScannedModule, tuple[Statement, ...]], ...]:
    """Returns the statements that `attribute` of `module` reaches.

    The statements are grouped by part. Each element contains the module of a part, and the
    statements of this part. Raises DeclarationError as `reached_parts` does.
    """
    walk = _CodeWalk(find)
    walk.name(module, attribute)
    return tuple(walk.statements)


def imported_files(module: str, find: Find) -> Mapping[str, SourceFile]:
    """Returns the files that an import of a module may read, by path.

    These are the files of whole modules, since an import runs all statements of a module.
    """
    found: dict[str, SourceFile] = {}
    seen: set[str] = set()
    waiting = list(module_parents(module))
    while waiting:
        # By name, not by path: a file's relative imports mean something else under another name.
        name = waiting.pop()
        source = None if name in seen else find(name)
        seen.add(name)
        if source is None:
            continue
        found[source.path] = source
        for node in ast.walk(ast.parse(source.content, filename=source.path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for _, imported in imported_by(node, source, find):
                    waiting.extend(module_parents(imported.module))
            elif isinstance(node, ast.Call) and (named := _imported_by_name(node)) is not None:
                waiting.extend(module_parents(named))
    return found


class _CodeWalk:
    """A search for the parts of a project's code that a pipeline's function reaches.

    The search visits each name and each module only once.
    """

    def __init__(self, find: Find) -> None:
        self.parts: dict[str, str] = {}
        self.statements: list[tuple[ScannedModule, tuple[Statement, ...]]] = []
        self._find = find
        self._scanned: dict[str, ScannedModule | None] = {}
        self._seen: set[tuple[str, str, str]] = set()

    def name(self, module: str, name: str) -> None:
        """Adds to the result all code that a name of a module reaches."""
        scanned = self._scanned_module(module)
        if scanned is None or self._is_visited("name", module, name):
            return
        self.reach_import(module)
        defined, imported = scanned.defines.get(name, ()), scanned.imports.get(name, ())
        if defined:
            self._add_part(f"{_part_kind(defined)} {scanned.source.path}:{name}", scanned, defined)
        for each in imported:
            self._reach_imported(each)
        if not defined and not imported:
            # A submodule, or bound invisibly: by exec, or by a `__getattr__`.
            self.whole(f"{module}.{name}" if self._scanned_module(f"{module}.{name}") else module)

    def reach_import(self, module: str) -> None:
        """Adds to the result the statements that run when a module is imported.

        The module itself may import other modules; the statements of these modules are added too.
        """
        for each in module_parents(module):
            scanned = self._scanned_module(each)
            if scanned is None or self._is_visited("importing", each, ""):
                continue
            for loaded in scanned.loads:
                self.reach_import(loaded)
            for star in scanned.stars:
                self.whole(star)
            if scanned.effects:
                self._add_part(f"statements {scanned.source.path}", scanned, scanned.effects)

    def whole(self, module: str) -> None:
        """Adds to the result all code of a module, and all code that this code reaches."""
        scanned = self._scanned_module(module)
        if scanned is None or self._is_visited("whole", module, ""):
            return
        self.reach_import(module)
        self._add_part(f"module {scanned.source.path}", scanned, scanned.statements)
        for found in scanned.imports.values():
            for each in found:
                self._reach_imported(each)

    def _add_part(
        self, part: str, scanned: ScannedModule, statements: tuple[Statement, ...]
    ) -> None:
        self.statements.append((scanned, statements))
        meanings = sorted(
            {
                meaning
                for statement in statements
                for meaning in self._follow_names(scanned, statement)
            }
        )
        self.parts[part] = "\n".join([*(statement.text for statement in statements), *meanings])

    def _follow_names(self, scanned: ScannedModule, statement: Statement) -> Iterator[str]:
        """Adds to the result the code of all names that a statement reads.

        Yields a line `NAME = FULL NAME` for each imported name that the statement reads. These
        lines become part of the normal form, since the statement's text does not contain the full
        names.
        """
        module = scanned.source.module
        chains = set(_dotted_chains(statement.node))
        for name in sorted(statement.names):
            imported = scanned.imports.get(name, ())
            for each in imported:
                yield f"{name} = {each}"
                if each.name is not None:
                    self._reach_imported(each)
                else:
                    self._reach_attributes(
                        each.module, [attributes for begin, attributes in chains if begin == name]
                    )
            reads_modules = name == "sys" and any(
                begin == name and attributes[:1] == ("modules",) for begin, attributes in chains
            )
            if name in scanned.defines:
                self.name(module, name)
            elif reads_modules or (name in _READS_ANYTHING and not imported):
                self.whole(module)
            elif name not in _BUILTINS and not imported:
                # From a star import of a foreign package, or bound invisibly.
                outside = [star for star in scanned.stars if self._scanned_module(star) is None]
                yield from (f"{name} = {star}.*" for star in outside)
                if not outside:
                    self.whole(module)
        self._imports_within(scanned, statement)

    def _imports_within(self, scanned: ScannedModule, statement: Statement) -> None:
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias, imported in imported_by(node, scanned.source, self._find):
                    self.reach_import(imported.module)
                    if alias == "*" or imported.name is None:
                        self.whole(imported.module)
                    else:
                        self._reach_imported(imported)
            elif isinstance(node, ast.Call) and _is_import_by_name(node):
                named = _imported_by_name(node)
                if named is None:
                    raise DeclarationError(
                        f"{scanned.source.path}:{node.lineno}: a module is imported "
                        "by a computed name, so it cannot be told what decides the rows",
                        hint="import it by its name, and choose among the imported",
                    )
                self.reach_import(named)
                self.whole(named)

    def _reach_attributes(self, module: str, uses: list[tuple[str, ...]]) -> None:
        """Adds to the result the code of the attributes of a module that a statement uses.

        Each element of `uses` contains the names after the module's name in a dotted expression. If
        an element is empty, the statement uses the module itself as a value, and the whole module
        is added.
        """
        for attributes in uses:
            inside, rest = module, list(attributes)
            while rest and (
                self._scanned_module(f"{inside}.{rest[0]}") is not None
                or self._scanned_module(inside) is None
            ):
                inside = f"{inside}.{rest.pop(0)}"
            if rest:
                self.name(inside, rest[0])
            else:
                self.whole(inside)

    def _reach_imported(self, imported: Imported) -> None:
        self.reach_import(imported.module)
        if imported.name is not None:
            self.name(imported.module, imported.name)
        elif self._scanned_module(imported.module) is not None:
            self.whole(imported.module)

    def _scanned_module(self, name: str) -> ScannedModule | None:
        if name not in self._scanned:
            source = self._find(name)
            self._scanned[name] = None if source is None else _scan_source(source, self._find)
        return self._scanned[name]

    def _is_visited(self, how: str, module: str, name: str) -> bool:
        key = (how, module, name)
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def _scan_source(source: SourceFile, find: Find) -> ScannedModule:
    try:
        return scan_module(source, find)
    except SyntaxError as error:
        raise DeclarationError(
            f"{source.path}:{error.lineno}: syntax error: {error.msg}"
        ) from error


def _part_kind(statements: tuple[Statement, ...]) -> str:
    match statements[-1].node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return "function"
        case ast.ClassDef():
            return "class"
        case _:
            return "value"


def _dotted_chains(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the first name and all further attributes of each dotted expression in a node."""
    found = expression_root(node)
    if found is not None:
        yield found
        return
    for each in ast.iter_child_nodes(node):
        yield from _dotted_chains(each)


def _is_import_by_name(node: ast.Call) -> bool:
    found = expression_root(node.func)
    return found is not None and (found[1] or (found[0],))[-1] in _IMPORTS_BY_NAME


def _imported_by_name(node: ast.Call) -> str | None:
    if not _is_import_by_name(node) or not node.args:
        return None
    name = node.args[0]
    is_plain = (
        isinstance(name, ast.Constant)
        and isinstance(name.value, str)
        and not name.value.startswith(".")
    )
    return str(name.value) if is_plain and isinstance(name, ast.Constant) else None
