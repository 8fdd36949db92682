"""The answer of a query, and a pinned snapshot that answers several queries.

A query runs once, and its rows are stored in a separate in-memory DuckDB database. Each form of the
answer (Arrow, pandas, ...) is converted from these stored rows when the caller requests the form.
The snapshot need not be pinned any more at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kappa.project.report import listing_html
from kappa.serving.query.render import Form, Listing, columns_of, render_listing

if TYPE_CHECKING:
    from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
    from kappa.serving.query.reader.reader import KeptRows, Reader

# ruff: noqa: PLC0415  # importing the package imports no library of data


class QueryResult:
    """The rows of a query, and the snapshot from which they were read.

    Each form of the result (Arrow, pandas, Polars, Python values) contains all rows. If a form
    cannot represent a value, the method for this form raises an error that names the column
    (docs/reference/values.md).

    Example:
        result = project.query("select page, hits from page_hits order by hits desc limit 10")
        for page, hits in result.fetchall():
            print(page, hits)
        print(result.generation, result.head)
    """

    def __init__(self, kept: KeptRows, snapshot: Snapshot) -> None:
        """Stores the rows of an answer, and the snapshot from which the rows were read."""
        self._kept = kept
        # The builds, frontiers and births that were read.
        self.snapshot = snapshot

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns. If a name occurs again, a number is added to the name."""
        return self._kept.columns

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the columns, with the names that DuckDB uses."""
        return self._kept.types

    @property
    def generation(self) -> int:
        """The generation that the query has read, or 0 if nothing is served."""
        return self.snapshot.generation

    @property
    def head(self) -> Mapping[str, Any]:
        """The generation that the query has read, and each pipeline's build, offsets and versions.

        The versions are the Delta versions of the pipeline's tables. All values can be converted to
        JSON.
        """
        from kappa.serving.query.pin.snapshot import head_of

        return head_of(self.snapshot)

    @cached_property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The rows as tuples of Python values."""
        return self._kept.python_rows()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows as tuples of Python values, like DuckDB's method of the same name."""
        return list(self.rows)

    def arrow(self) -> Any:
        """Returns the rows as a `pyarrow.Table`.

        Raises UsageError, with the name of the column, if Arrow cannot represent a value.
        """
        return self._kept.arrow_table()

    def df(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`.

        Raises UsageError, with the name of the column, if Arrow cannot represent a value.
        """
        return self.arrow().to_pandas()

    def pl(self) -> Any:
        """Returns the rows as a `polars.DataFrame`.

        Raises UsageError if Polars is not installed. Also raises UsageError, with the name of the
        column, if Arrow cannot represent a value.
        """
        return polars_frame(self.arrow())

    @property
    def listing(self) -> Listing:
        """The rows as a listing for display."""
        return Listing(self.columns, self.rows)

    @property
    def document(self) -> dict[str, Any]:
        """The answer as a document, as `kappa query -o json` prints it."""
        return {
            **self.head,
            "columns": columns_of(self.columns, self.types),
            "rows": self.listing.row_objects(),
        }

    def __len__(self) -> int:
        return self._kept.count

    def __str__(self) -> str:
        return render_listing(Form.TABLE, self.listing)

    def _repr_html_(self) -> str:
        shown = Listing(self.columns, self._kept.python_rows(limit=100))
        return listing_html(shown, total=len(self))


def polars_frame(table: Any) -> Any:
    """Converts an Arrow table to a `polars.DataFrame`.

    Raises UsageError if Polars is not installed. Kappa itself does not require Polars.
    """
    from importlib import import_module

    from kappa.base.errors import UsageError

    try:
        polars: Any = import_module("polars")
    except ModuleNotFoundError:
        raise UsageError(
            "Polars is not installed", hint="pip install polars; or use .arrow() or .df()"
        ) from None
    return polars.from_arrow(table)


class PinnedTables:
    """A snapshot that stays pinned, so that all queries read the same frontiers.

    Example:
        with project.pin() as pinned:
            total = pinned.query("select sum(hits) from page_hits").fetchall()
            pages = pinned.query("select count(*) from page_hits").fetchall()
    """

    def __init__(self, pinned: PinnedSnapshot, reader: Reader) -> None:
        """Stores a pinned snapshot and a reader of its tables. `Project.pin` closes both."""
        self._pinned = pinned
        self._reader = reader

    @property
    def snapshot(self) -> Snapshot:
        """The builds, their frontiers and their birth certificates that the queries read."""
        return self._pinned.snapshot

    @property
    def generation(self) -> int:
        """The generation that the queries read."""
        return self.snapshot.generation

    def query(self, sql: str) -> QueryResult:
        """Answers a query from the pinned snapshot.

        Raises UsageError if the query has a mistake. Raises Conflict if the lease of the snapshot
        has ended, for example because the machine was suspended.
        """
        kept = self._reader.keep_rows(sql)
        self._pinned.confirm_kept()
        return QueryResult(kept, self.snapshot)
