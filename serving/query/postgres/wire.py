"""The forms in which a Postgres client can request the rows of a query."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """The options of `COPY ... TO STDOUT`; `form` is `text`, `csv` or `binary`."""

    form: str = "text"
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


@dataclass(frozen=True, slots=True)
class Wire:
    """The form in which a Postgres client requests the rows of a query.

    If `copy` is None, the rows are those of a result; otherwise, they have the format of `copy`.
    `formats` contains the client's codes, 0 for text and 1 for binary. No code means text, a single
    code is for all columns, and otherwise there is one code for each column. If `catalogue` is
    True, the query also reads `pg_catalog`. If `describes` is True, the client requests the types
    of the query instead of its rows.
    """

    formats: tuple[int, ...] = ()
    copy: Copy | None = None
    catalogue: bool = False
    describes: bool = False


ROWS_AS_TEXT = Wire()
