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
    path = f"{birth.module.replace('.', '/')}.py"
    content = read_snapshot(store, birth).get(path)
    try:
        tree = ast.parse(content or b"")
    except (SyntaxError, ValueError):
        return Meaning("", "")
    function = next(
        (
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == birth.pipeline
        ),
        None,
    )
    return Meaning(
        "" if function is None else (ast.get_docstring(function) or "")[:_LONGEST],
        (ast.get_docstring(tree) or "")[:_LONGEST],
    )
