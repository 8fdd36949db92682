"""The archives of topics: which columns one keeps, and of which topics there is one."""

from __future__ import annotations

from enum import StrEnum

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import shown
from kappa.declare.topic_kind import TopicKind


class Archive(StrEnum):
    """The contents of a topic's archive: nothing, decoded columns, or those and raw records."""

    NONE = "none"
    COLUMNS = "columns"
    RAW = "raw"


def archive_of(
    source: Source, topic: str, given: bool | str, kind: str, identity: tuple[str, ...]
) -> Archive:
    """Returns what a topic's archive keeps. Raises DeclarationError if it can have none so."""
    if given is False:
        return Archive.NONE
    if given is not True and given != Archive.RAW:
        raise DeclarationError(
            f"{source}: topic {topic} has archive={shown(given)}",
            hint='archive is True, or "raw" to keep keys and values too, or False',
        )
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: topic {topic} is compacted, and has no history to archive",
            hint='archive=True is for kind="retained"',
        )
    if identity:
        raise DeclarationError(
            f"{source}: topic {topic} declares an identity, "
            "and an archive does not remember what was accepted before",
            hint="leave out archive=True, or identity",
        )
    return Archive.COLUMNS if given is True else Archive.RAW
