"""The shapes of what a pipeline reads and writes, before anything else is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described


def check_shapes(source: Source, name: str, reads: object, writes: object) -> None:
    """Raises DeclarationError if they are no mapping and no list."""
    if not isinstance(reads, Mapping) or not all(isinstance(each, str) for each in reads):
        raise DeclarationError(
            f"{source}: pipeline {name} reads {described(reads)}, which has no parameter's name",
            hint='name the parameter that gets it: reads={"events": TOPIC}',
        )
    if isinstance(writes, str) or not isinstance(writes, Iterable):
        raise DeclarationError(
            f"{source}: pipeline {name} writes {described(writes)}, which is not in a list",
            hint="put it into a list: writes=[TABLE]",
        )
