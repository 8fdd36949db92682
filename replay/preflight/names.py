"""The meaning of names in one statement: `F.now` is `pyspark.sql.functions.now`. Pure."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from kappa.code.scan import Module, Statement, imported_by, root
from kappa.code.sources import Find


class Names:
    """What the names in one statement mean."""

    def __init__(self, scanned: Module, statement: Statement, find: Find) -> None:
        self._scanned = scanned
        self._names = statement.names
        self._find = find
        self._inside: dict[str, list[str]] = {}
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias, imported in imported_by(node, scanned.source, find):
                    self._inside.setdefault(alias, []).append(str(imported))

    def meant(self, node: ast.AST) -> Iterator[str]:
        """Yields the full names outside the project that a dotted expression may mean."""
        found = root(node)
        if found is None:
            return
        name, attributes = found
        for full in self._origins(name):
            if self._find(full.partition(".")[0]) is None:
                yield ".".join((full, *attributes))

    def _origins(self, name: str) -> Iterator[str]:
        yield from self._inside.get(name, ())
        if name not in self._names:
            # A parameter, or bound within.
            return
        imported = self._scanned.imports.get(name, ())
        yield from map(str, imported)
        if not imported and name not in self._scanned.defines:
            if name in dir(builtins):
                yield f"builtins.{name}"
            else:
                yield from (f"{star}.{name}" for star in self._scanned.stars)
