"""An untrusted query as values: the allowance, the question, and the reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any, Self

from kappa.base.errors import KappaError
from kappa.base.sections import ServeSettings
from kappa.base.units import parse_memory
from kappa.serving.access.roles import THIS_MACHINE, Identity
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.postgres.wire import ROWS_AS_TEXT, Wire

# A process of `serve.query_memory`'s default opens so many; compaction keeps tables far below.
MOST_FILES = 10_000


class Busy(KappaError):
    """The error if all places for queries stay taken for too long."""

    status = 503


class Format(StrEnum):
    """The format of an answer."""

    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"
    # Rows as messages of Postgres's protocol.
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a query, and how many queries run at once.

    The limits are bytes of memory, seconds of time and of each core, rows and bytes of the answer,
    and the seconds for which a query may first wait for a write.
    """

    memory: int = 512 << 20
    seconds: float = 30.0
    rows: int = 100_000
    bytes: int = 32 << 20
    at_once: int = 4
    wait_seconds: float = 30.0

    @classmethod
    def of(cls, settings: ServeSettings) -> Self:
        """Returns the limits in the settings of a project."""
        return cls(
            parse_memory(settings.query_memory),
            settings.query_seconds,
            settings.query_rows,
            parse_memory(settings.query_bytes),
            settings.queries,
            settings.wait_seconds,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A query, the format of the answer, and the most rows and bytes to return.

    The allowance bounds both numbers, and stands in for a number that is None. The query sees the
    tables that the `reader` may read. Queries of two readers never run in the same process.
    `wire` is for the format of a Postgres client.
    """

    sql: str
    form: Format = Format.JSON
    rows: int | None = None
    bytes: int | None = None
    reader: Identity = THIS_MACHINE
    wire: Wire = ROWS_AS_TEXT


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a file with the bytes, and facts about the answer.

    The file must be read from the beginning. The caller closes `body`, which deletes the file.
    `columns` have a name and DuckDB's type each, and for a Postgres client the type on the wire.
    `truncated` is True if rows were left out. `snapshot` is the snapshot of the answer.
    """

    body: IO[bytes]
    size: int
    columns: tuple[Mapping[str, Any], ...]
    rows: int
    truncated: bool
    snapshot: Snapshot
