"""Fixtures for tests of rehearsed builds. Spark is imported by the first test that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kappa import Alert, Sink, Table, Topic, View, pipeline

if TYPE_CHECKING:
    from kappa import Pipeline
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal

# Begins a build: a pipeline, a log, and how many offsets a slice of this process has at most.
Rehearse = Callable[..., "Rehearsal"]


def memory_log() -> MemoryLog:
    """Returns an empty log in memory."""
    from kappa.engine.children.rehearsal import MemoryLog

    return MemoryLog()


def pass_on(
    topic: Topic, *writes: Table | View | Sink | Alert, name: str = "passing", **options: Any
) -> Pipeline:
    """Declares a pipeline whose function writes a topic's events unchanged to each table."""

    def function(events: Any) -> dict[str, Any]:
        return {table.name: events for table in declared.function_tables}

    made = pipeline(name=name, reads={"events": topic}, writes=writes, **options)
    declared = made(function)
    return declared
