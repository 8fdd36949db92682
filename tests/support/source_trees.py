"""Source files that tests have as texts, found as the modules of a project are."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.code.sources import Find, SourceFile


def finding(tree: Mapping[str, str]) -> Find:
    """Returns a search for modules in a tree of files: each path has its text."""

    def find(module: str) -> SourceFile | None:
        stem = module.replace(".", "/")
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if path in tree:
                is_package = path.endswith("__init__.py")
                return SourceFile(module, path, tree[path].encode(), is_package=is_package)
        return None

    return find
