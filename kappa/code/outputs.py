"""The columns that a pipeline's function returns for each table.

A child process learns the columns once per rows version, since a plan must know columns but run no
Spark itself. engine/children/describe.py runs the function on empty frames in a session of its own.
The answer is kept under `cache/describe/<rows version>.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.settings import Settings
from kappa.code.spark_child import ask_program
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.columns import Type, parse_type
from kappa.state.documents import cached_json
from kappa.state.store import Store

_FORMAT = 1
# A function that takes longer than this on no rows hangs.
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outputs:
    """A function's output: table -> column -> type, in the function's order.

    `changing` has Spark's names of the expressions that give another value each time.
    """

    tables: Mapping[str, Mapping[str, Type]]
    changing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineToDescribe:
    """A pipeline to describe: its module, and the rows version under which the answer is kept."""

    pipeline: Pipeline
    module: str
    rows_version: str


def learn_outputs(
    settings: Settings,
    store: Store,
    folder: Path,
    wanted: Mapping[str, PipelineToDescribe],
    show: Callable[[str], None] = lambda _step: None,
) -> Mapping[str, Outputs | DeclarationError]:
    """Returns each pipeline's outputs in the project's `folder`, or why the pipeline is refused.

    The outputs are taken from the cache if the rows version was described before. A
    DeclarationError names the user's line: the function fails, is not row-local, or does not return
    all columns that the tables need. `show` is called with each slow step as the step begins.
    """
    found: dict[str, Outputs | DeclarationError] = {}
    for name, described in wanted.items():
        kept = (
            Outputs({})
            if not described.pipeline.function_tables
            else _read_cached(store, described.rows_version)
        )
        if kept is not None:
            found[name] = kept
    missing = {name: described for name, described in wanted.items() if name not in found}
    if missing:
        answers = _ask_child(settings, folder, missing, show)
        for name, described in missing.items():
            answer = answers[name]
            if "message" in answer:
                found[name] = DeclarationError(answer["message"], hint=answer["hint"])
                continue
            store.put_json(_cache_name(described.rows_version), {"format": _FORMAT, **answer})
            found[name] = _parsed_outputs(answer)
    return found


def _read_cached(store: Store, rows_version: str) -> Outputs | None:
    document = cached_json(store, _cache_name(rows_version))
    return (
        _parsed_outputs(document)
        if document is not None and document.get("format") == _FORMAT
        else None
    )


def _ask_child(
    settings: Settings,
    folder: Path,
    missing: Mapping[str, PipelineToDescribe],
    show: Callable[[str], None],
) -> Any:
    def cut(name: str, last: str | None) -> Mapping[str, str]:
        pipeline = missing[name].pipeline
        what = (
            f"did not return within {_SECONDS:g} seconds, on no rows"
            if last is None
            else f"ended its process, on no rows: {last}"
        )
        return {
            "message": f"{pipeline.source}: the function of pipeline {name} {what}",
            "hint": "it must only build up frames and return them",
        }

    return ask_program(
        settings,
        folder,
        "kappa.engine.children.describe",
        {name: described.module for name, described in missing.items()},
        seconds=lambda _left: _SECONDS,
        cut=cut,
        say=show,
    )


def _parsed_outputs(answer: Mapping[str, Any]) -> Outputs:
    tables = {
        table: {column: parse_type(kind) for column, kind in columns}
        for table, columns in answer["tables"].items()
    }
    # Answers kept by an older Kappa lack `changing`.
    return Outputs(tables, tuple(answer.get("changing", ())))


def _cache_name(rows_version: str) -> str:
    return f"cache/describe/{rows_version}.json"
