"""The determinism lint: code that may give other rows in a replay, by file and line. Pure.

A pipeline's rows must follow from its records alone. The lint looks at all that the function
reaches (kappa/code/reach.py): bodies of UDFs, helpers, what modules compute when they are
imported, and SQL in strings. What it misses and Spark finds in the plan of the function
(kappa/engine/spark/rowlocal.py) is named with the function's line. It is a lint: it knows names
(doubts.py), and does not follow values. Views and checks are left alone: they are computed anew
each time, and no row of a table follows from them.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator

from kappa.code.reach import reached
from kappa.code.scan import Module, Statement, imported_by, root
from kappa.code.sources import Find
from kappa.replay.rollout.plan.doubts import (
    CHANCE,
    FROM_RECORD,
    METHODS,
    SPARK,
    SPARK_CLASSES,
    SPARK_NAMES,
    Doubt,
    doubt_of,
)
from kappa.replay.rollout.plan.finding import Finding

_IMPORTS_BY_NAME = frozenset({"importlib.import_module", "__import__"})
_CALLED = "|".join((*SPARK_NAMES, "random"))
# In any text, as SQL is often composed elsewhere; a space before the bracket would find prose.
_ANYWHERE = re.compile(rf"\b({_CALLED})\(", re.IGNORECASE)
# In the argument of a call that takes SQL: there, a bare word is no column's name.
_IN_SQL = re.compile(
    rf"\b({_CALLED})\s*\(|\b(current_timestamp|current_date|current_time|localtimestamp|current_user)\b",
    re.IGNORECASE,
)
_SQL_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|--[^\n]*")
_AS_SQL = " in SQL"
_TAKES_SQL = frozenset({"expr", "selectExpr", "sql", "where", "filter"})


def doubtful(module: str, attribute: str, find: Find) -> tuple[Finding, ...]:
    """Returns what may give other rows in a replay, by file and line.

    All code is searched that `attribute` of `module` reaches.
    """
    found: dict[tuple[str, int, str], Finding] = {}
    for scanned, statements in reached(module, attribute, find):
        for statement in statements:
            for line, what, kind in _in_statement(scanned, statement, find):
                path = scanned.source.path
                found.setdefault(
                    (path, line, what),
                    Finding(
                        f"{path}:{line} uses {what.removeprefix('builtins.')}, which {kind.why}",
                        kind.hint,
                        f"{path}:{line}",
                    ),
                )
    return tuple(found[place] for place in sorted(found))


def overlooked(changing: Iterable[str], found: Iterable[Finding], line: str) -> Iterator[Finding]:
    """Yields what Spark finds in a function's plan and the lint has not found in its code.

    It gives another value each time. `line` is the function's.
    """
    known = set(map(_as_spark, found))
    for kind in changing:
        if kind.lower() not in known:
            yield Finding(
                f"{line} uses Spark's {kind}, which gives another value each time",
                FROM_RECORD,
                line,
            )


def _as_spark(found: Finding) -> str:
    """Returns Spark's name, in lower case, for a Spark function that was found; else ""."""
    # Neither file name nor reason says what was found, and Python has functions of the same names.
    what = found.message.removeprefix(f"{found.name} uses ").partition(", which ")[0]
    if not (what.startswith(f"{SPARK}.") or what.endswith(_AS_SQL)):
        return ""
    plain = what.removesuffix(_AS_SQL).rpartition(".")[2].lower().replace("_", "")
    return SPARK_CLASSES.get(plain, plain)


def _in_statement(
    scanned: Module, statement: Statement, find: Find
) -> Iterator[tuple[int, str, Doubt]]:
    used = list(_used(scanned, statement, find))
    yield from used
    # An import inside a function is there to be used. If no use was found, it is named itself.
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Import | ast.ImportFrom) and node is not statement.node:
            for _, imported in imported_by(node, scanned.source, find):
                kind = doubt_of(str(imported), None)
                if (
                    kind is not None
                    and find(imported.module.partition(".")[0]) is None
                    and not any(what.startswith(str(imported)) for _, what, _ in used)
                ):
                    yield node.lineno, str(imported), kind


def _used(scanned: Module, statement: Statement, find: Find) -> Iterator[tuple[int, str, Doubt]]:
    names = _Names(scanned, statement, find)
    for node, arguments in _uses(statement.node):
        match node:
            case ast.Constant(value=str()):
                yield from _in_text(node, _ANYWHERE)
            case ast.Call():
                if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                    yield node.lineno, f".{node.func.attr}()", METHODS[node.func.attr]
                yield from _given_sql(node)
                yield from _by_name(node, names)
            case ast.Name() | ast.Attribute():
                for full in names.meant(node):
                    kind = doubt_of(full, arguments)
                    if kind is not None:
                        yield node.lineno, full, kind
            case _:
                pass


def _uses(node: ast.AST, arguments: int | None = None) -> Iterator[tuple[ast.AST, int | None]]:
    """Yields all nodes, a dotted name as one, with the number of arguments if it is called."""
    yield node, arguments
    if root(node) is not None:
        return
    for each in ast.iter_child_nodes(node):
        called = isinstance(node, ast.Call) and each is node.func
        yield from _uses(
            each,
            len(node.args) + len(node.keywords) if called and isinstance(node, ast.Call) else None,
        )


class _Names:
    """The meanings of the names in one statement."""

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


def _by_name(call: ast.Call, names: _Names) -> Iterator[tuple[int, str, Doubt]]:
    """Yields imports by a name given as text: `import_module("random")`."""
    called = {full.removeprefix("builtins.") for full in names.meant(call.func)}
    if (
        called & _IMPORTS_BY_NAME
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ):
        kind = doubt_of(call.args[0].value, None)
        if kind is not None:
            yield call.lineno, call.args[0].value, kind


def _given_sql(call: ast.Call) -> Iterator[tuple[int, str, Doubt]]:
    """Yields what is doubtful in the text given to a call that takes SQL."""
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    if name in _TAKES_SQL:
        for argument in call.args:
            for each in ast.walk(argument):
                if isinstance(each, ast.Constant):
                    yield from _in_text(each, _IN_SQL)


def _in_text(constant: ast.Constant, words: re.Pattern[str]) -> Iterator[tuple[int, str, Doubt]]:
    """Yields doubtful words in a text, with their lines.

    What SQL quotes or comments out is blanked out first.
    """
    if not isinstance(constant.value, str):
        return
    plain = _SQL_TEXT.sub(lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), constant.value)
    for match in words.finditer(plain):
        word = next(group for group in match.groups() if group).lower()
        line = min(
            constant.lineno + plain.count("\n", 0, match.start()),
            constant.end_lineno or constant.lineno,
        )
        yield line, f"{word}{_AS_SQL}", SPARK_NAMES.get(word, CHANCE)
