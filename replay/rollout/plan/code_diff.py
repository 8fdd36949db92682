"""A readable diff of the functions, topics and tables that changed since a build began. Pure.

The code of both sides is printed from the syntax trees, without comments, docstrings and layout.
kappa/code/scan.py ignores the same things when it computes a version. So the diff omits changes
that cannot affect a row.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kappa.code.fingerprint import changed_parts, part_name
from kappa.code.scan import ScannedModule, Statement, scan_module
from kappa.code.sources import PIPELINES, Find, SourceFile
from kappa.declare.values.csv_text import csv_rows

_CODE = frozenset({"function", "class", "value", "statements", "module"})
_CONTEXT_LINES = 2
# As kappa/declare/seed.py declares the rows of a file.
_SEED = re.compile(r"rows of a file with SHA-256 ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class CodeSide:
    """One side of a diff: fingerprints of the parts of the code, code files and declarations.

    The keys of `parts` and `declarations` are names of parts, and the keys of `files` are paths.
    """

    parts: Mapping[str, str]
    files: Mapping[str, bytes]
    declarations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartDiff:
    """A part of the code that differs: its name, a readable name, and the lines of a unified diff.

    `lines` is empty if the code of the part is unknown on either side.
    """

    part: str
    what: str
    lines: tuple[str, ...]


def part_diffs(old: CodeSide, new: CodeSide) -> tuple[PartDiff, ...]:
    """Returns the parts in which two versions differ. Parts of the user's own code come first."""
    return tuple(
        PartDiff(part, part_name(part), tuple(_part_diff(part, old, new)))
        for part in changed_parts(old.parts, new.parts)
    )


def _part_diff(part: str, old: CodeSide, new: CodeSide) -> Iterator[str]:
    before, after = _part_lines(part, old, new), _part_lines(part, new, old)
    if before is None or after is None:
        return
    # The two lines that name files come first: the part is named already.
    body = list(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT_LINES))[2:]
    yield from body


def _part_lines(part: str, side: CodeSide, other: CodeSide) -> list[str] | None:
    """Returns the lines of a part of the code on one side.

    Returns [] if `side` does not have the part, and None if the code of the part is unknown.
    """
    if part not in side.parts:
        return []
    kind, _, rest = part.partition(" ")
    if kind not in _CODE:
        if part not in side.declarations:
            return None
        return [_of_file(line, side, other) for line in side.declarations[part].splitlines()]
    path, _, name = (
        rest.rpartition(":") if kind in {"function", "class", "value"} else (rest, "", "")
    )
    module = _scan_module(path, side)
    if module is None:
        return None
    statements = _part_statements(kind, name, module)
    return [
        *_import_meanings(statements, module, _scan_module(path, other)),
        *(
            line
            for each in statements
            for line in ast.unparse(ast.fix_missing_locations(each.node)).splitlines()
        ),
    ]


def _of_file(line: str, side: CodeSide, other: CodeSide) -> str:
    """Makes a line of a printed declaration readable if the line is about the rows of a file.

    The returned line contains the path of the file, its number of rows, and how many rows only
    `side` has. A line about anything else is returned unchanged, and so is a line about a file that
    `side` does not have.
    """
    found = _SEED.match(line)
    if found is None:
        return line
    for path, content in side.files.items():
        if hashlib.sha256(content).hexdigest() == found[1]:
            rows = _count_rows(content)
            here = (rows - _count_rows(other.files.get(path, b""))).total()
            return (
                f"{rows.total():,} rows of {path}, {here:,} of them only here, with SHA-256"
                f" {found[1][:12]}...{line[found.end() :]}"
            )
    return line


def _count_rows(content: bytes) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(row) for _, row in islice(csv_rows(content), 1, None))


def _part_statements(kind: str, name: str, module: ScannedModule) -> tuple[Statement, ...]:
    match kind:
        case "module":
            return module.statements
        case "statements":
            return module.effects
        case _:
            return module.defines.get(name, ())


def _import_meanings(
    statements: tuple[Statement, ...], module: ScannedModule, other: ScannedModule | None
) -> Iterator[str]:
    """Yields a comment for each name in `statements` that the two sides import differently.

    `module` and `other` are the modules of the two sides. Without these comments, the code of both
    sides would look the same. A comment contains the object that `module` imports.
    """
    for name in (
        sorted(frozenset().union(*(each.names for each in statements))) if other is not None else ()
    ):
        here = module.imports.get(name, ())
        if here and other is not None and other.imports.get(name, ()) != here:
            yield f"# {name} is {' or '.join(map(str, here))}"


def _scan_module(path: str, side: CodeSide) -> ScannedModule | None:
    content = side.files.get(path)
    if content is None:
        return None
    name = path.removesuffix(".py").replace("/", ".")
    is_package = name.endswith(".__init__")
    try:
        return scan_module(
            SourceFile(name.removesuffix(".__init__"), path, content, is_package=is_package),
            _source_finder(side.files),
        )
    except SyntaxError:
        # The code was written for another Python.
        return None


def _source_finder(files: Mapping[str, bytes]) -> Find:
    def find(module: str) -> SourceFile | None:
        stem = module.replace(".", "/")
        for path in (
            f"{stem}/__init__.py",
            f"{stem}.py",
            f"{PIPELINES}/{stem}/__init__.py",
            f"{PIPELINES}/{stem}.py",
        ):
            if path in files:
                return SourceFile(
                    module, path, files[path], is_package=path.endswith("__init__.py")
                )
        return None

    return find
