"""The way in which a Postgres client wants the rows of a query. Values."""

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
    """The form of rows: the rows of a result, or rows that `copy` writes.

    `formats` are the client's codes, 0 for text and 1 for binary: none means text, a single code
    is for all columns, and several are for a column each. `catalogue` asks for `pg_catalog` beside
    the tables, and `describes` for the types of the query in place of its rows.
    """

    formats: tuple[int, ...] = ()
    copy: Copy | None = None
    catalogue: bool = False
    describes: bool = False


ROWS_AS_TEXT = Wire()
