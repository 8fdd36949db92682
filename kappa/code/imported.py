"""The meaning of a module's imports. Pure and static: nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kappa.code.sources import Find, SourceFile


@dataclass(frozen=True, slots=True)
class Imported:
    """The meaning of an imported name: a module, or the `name` in one."""

    module: str
    name: str | None = None

    def __str__(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


def imported_by(
    node: ast.Import | ast.ImportFrom, source: SourceFile, find: Find
) -> Iterator[tuple[str, Imported]]:
    """Yields the names that an import binds (`*` for all) and the meaning of each."""
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
    base = absolute(node.module or "", node.level, source)
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        found = (
            Imported(submodule)
            if alias.name != "*" and find(submodule) is not None
            else Imported(base, None if alias.name == "*" else alias.name)
        )
        yield alias.asname or alias.name, found


def absolute(module: str, level: int, source: SourceFile) -> str:
    """Returns the full name of a module imported with `level` leading dots."""
    if level == 0:
        return module
    package = source.module.split(".") if source.is_package else source.module.split(".")[:-1]
    kept = package[: len(package) - (level - 1)]
    return ".".join([*kept, module] if module else kept)


def parents(module: str) -> Iterator[str]:
    """Yields the packages that importing a module imports first, then the module itself."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        yield ".".join(parts[:depth])


def root(node: ast.AST) -> tuple[str, tuple[str, ...]] | None:
    """Returns the name that a dotted expression begins with, and the attributes after it.

    Returns None if the expression does not begin with a name.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, tuple(reversed(attributes))) if isinstance(node, ast.Name) else None
