"""The meaning of tables: the docstrings of the code that a build was born of.

The code is parsed, and never run: the snapshot of a build is code, and this process is a server.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kappa.code.code_snapshot import read_snapshot
from kappa.state.build import Birth
from kappa.state.store import Store

_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Meaning:
    """The docstrings of a pipeline's function and module; "" without one."""

    pipeline: str
    module: str

    @property
    def text(self) -> str:
        """Both, the function's first."""
        return "\n\n".join(filter(None, (self.pipeline, self.module)))


def meaning_of(store: Store, birth: Birth) -> Meaning:
    """Returns what the code of a build says of its pipeline."""
    files = read_snapshot(store, birth)
    own = f"{birth.module.replace('.', '/')}.py"
    # A module may import its pipeline from another file.
    for path in sorted(files, key=lambda each: (each != own, each)):
        try:
            tree = ast.parse(files[path])
        except (SyntaxError, ValueError):
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == birth.pipeline:
                return Meaning(_docstring(node), _docstring(tree))
    return Meaning("", "")


def _docstring(node: ast.FunctionDef | ast.Module) -> str:
    return (ast.get_docstring(node) or "")[:_LONGEST]
