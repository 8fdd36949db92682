"""The names that the files in `pipelines/` declare, read from the files' text.

No file is imported, since importing the user's code could take seconds. But a shell needs the names
each time the user presses TAB, and the page needs them to draw the declared pipelines. The
functions do not find names that code computes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_DECLARED = {"Topic": "topic", "Table": "table", "View": "table", "Sink": "topic", "Alert": "alert"}


def declared_names(project: Path) -> set[tuple[str, str]]:
    """Returns (kind, name) for each pipeline, table, topic and alert that the files declare.

    A view counts as a table, and a sink as a topic. A file that cannot be parsed is skipped.
    """
    found: set[tuple[str, str]] = set()
    for path in sorted((project / "pipelines").glob("*.py")):
        try:
            found.update(_names_in(ast.parse(path.read_bytes())))
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
    return found


@dataclass(frozen=True, slots=True)
class WrittenPipeline:
    """A pipeline as the text of its file declares it.

    `topics` are the names of the topics that the pipeline reads. `relations` are its tables and
    views, each as (kind, name). Both leave out names that are not in the text of this file.
    """

    name: str
    topics: tuple[str, ...]
    relations: tuple[tuple[str, str], ...]


def written_pipelines(project: Path) -> tuple[WrittenPipeline, ...]:
    """Returns the pipelines that the files declare, sorted by name.

    A file that cannot be parsed is skipped. A file is parsed again only if its time or size has
    changed.
    """
    found: dict[str, WrittenPipeline] = {}
    for path in sorted((project / "pipelines").glob("*.py")):
        try:
            seen = path.stat()
            found |= {each.name: each for each in _parsed(path, seen.st_mtime_ns, seen.st_size)}
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
    return tuple(found[name] for name in sorted(found))


@functools.lru_cache(maxsize=512)
def _parsed(path: Path, _changed_ns: int, _size: int) -> tuple[WrittenPipeline, ...]:
    module = ast.parse(path.read_bytes())
    named: dict[str, ast.expr] = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                named[name] = value
    return tuple(_pipelines_in(module, named))


def _pipelines_in(module: ast.Module, named: Mapping[str, ast.expr]) -> Iterator[WrittenPipeline]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                for each in decorators:
                    match each:
                        case ast.Call(func=ast.Name(id="pipeline"), keywords=keywords):
                            parts = {
                                of.arg: list(_declarations(of.value, named)) for of in keywords
                            }
                            yield WrittenPipeline(
                                next(_named(keywords), name),
                                tuple(of for kind, of in parts.get("reads", ()) if kind == "Topic"),
                                tuple(
                                    (kind.lower(), of)
                                    for kind, of in parts.get("writes", ())
                                    if kind in {"Table", "View"}
                                ),
                            )


def _declarations(value: ast.expr, named: Mapping[str, ast.expr]) -> Iterator[tuple[str, str]]:
    """Yields (class, name) for each declaration in a list, a tuple or a dictionary's values."""
    elements = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", ())
    for element in elements:
        found = named.get(element.id) if isinstance(element, ast.Name) else element
        match found:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=str(name)), *_]):
                yield kind, name


def _names_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=str(name)), *_]) if (
                kind in _DECLARED
            ):
                yield _DECLARED[kind], name
            case ast.FunctionDef(name=name, decorator_list=decorators):
                for each in decorators:
                    match each:
                        case ast.Call(func=ast.Name(id="pipeline"), keywords=keywords):
                            yield "pipeline", next(_named(keywords), name)


def _named(keywords: list[ast.keyword]) -> Iterator[str]:
    for each in keywords:
        match each:
            case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                yield name
