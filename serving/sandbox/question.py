"""A query of a stranger: what it may have, what it asks, and the reply. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Self

from kappa.base.errors import KappaError
from kappa.base.sections import ServeSettings
from kappa.base.units import parse_memory
from serving.pin.snapshot import Snapshot


class Busy(KappaError):
    """As many queries as may be are being answered, and none has ended in time."""

    status = 503


class Format(StrEnum):
    """What an answer is written as."""

    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one query may have: bytes of memory, seconds of time and of each core, rows and bytes of its answer; and how many run at once."""

    memory: int = 512 << 20
    seconds: float = 30.0
    rows: int = 100_000
    bytes: int = 32 << 20
    at_once: int = 4

    @classmethod
    def of(cls, settings: ServeSettings) -> Self:
        """What the settings of a project allow."""
        return cls(
            parse_memory(settings.query_memory),
            settings.query_seconds,
            settings.query_rows,
            parse_memory(settings.query_bytes),
            settings.queries,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """One query, what its answer is written as, and where it stops though there were more rows."""

    sql: str
    form: Format = Format.JSON
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer's bytes, from their beginning, in a file that goes when it is closed, which is for who asked to do; `truncated`: there was more.

    `columns` have a name and DuckDB's type each. `snapshot` is what all of it is true of.
    """

    body: IO[bytes]
    size: int
    columns: tuple[Mapping[str, str], ...]
    rows: int
    truncated: bool
    snapshot: Snapshot
