"""An untrusted query, its limits and its answer, as values."""

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
    """The error for a query that had to wait too long because too many queries run."""

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
    """The limits of a query, and the number of queries that may run at once.

    `memory` is in bytes. `seconds` limits both the duration and the CPU time of the query. `rows`
    and `bytes` limit the answer. `wait_seconds` is the time for which a client may wait, before its
    query starts, until readers see a write.
    """

    memory: int = 512 << 20
    seconds: float = 30.0
    rows: int = 100_000
    bytes: int = 32 << 20
    at_once: int = 4
    wait_seconds: float = 30.0

    @classmethod
    def of(cls, settings: ServeSettings) -> Self:
        """Returns the limits that the settings of a project contain."""
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
    """A query, the format of its answer, and the largest numbers of rows and bytes to return.

    `rows` and `bytes` cannot exceed the sandbox's limits; if they are None, the sandbox's limits
    apply. The query can read the tables that `reader` may read. Queries of different readers never
    run in the same process. `wire` is the form of the rows for a Postgres client. If `names` is
    True, the reply has the names of the tables that the query reads.
    """

    sql: str
    form: Format = Format.JSON
    rows: int | None = None
    bytes: int | None = None
    reader: Identity = THIS_MACHINE
    wire: Wire = ROWS_AS_TEXT
    names: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a file with its bytes, and facts about the answer.

    `body` is positioned at its beginning. The caller must close `body`, which deletes the file.
    Each of `columns` contains a name and DuckDB's type, and for a Postgres client also the Postgres
    type. `truncated` is True if rows were left out. `snapshot` is the snapshot that the query read.
    `named` are the tables that the query may have read, as (pipeline, table), if the question asks
    for names.
    """

    body: IO[bytes]
    size: int
    columns: tuple[Mapping[str, Any], ...]
    rows: int
    truncated: bool
    snapshot: Snapshot
    named: tuple[tuple[str, str], ...]
