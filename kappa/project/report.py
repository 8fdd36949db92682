"""A report for people and for programs: rows, a document, a text, and HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from kappa.serving.query.render import Form, Listing, cell_text, render_listing

# A notebook keeps what it shows: more rows make it slow, and nobody reads them.
_SHOWN_ROWS = 100


@dataclass(frozen=True, slots=True)
class Report:
    """Rows under named columns, with a heading and a document.

    `listing` contains the rows for display. `document` is the whole report for programs, or None if
    the rows are the whole report. `for_machines` contains the rows for programs, or None if they
    equal the rows for display. If `text` is not "", it is displayed instead of the heading and the
    rows.
    """

    listing: Listing
    document: Any = None
    heading: str = ""
    for_machines: Listing | None = None
    text: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows for programs. Each row is a mapping from column to value."""
        return self.whole_listing.row_objects()

    @property
    def whole_listing(self) -> Listing:
        """The listing with the rows for programs."""
        return self.for_machines or self.listing

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.listing.rows)

    def __str__(self) -> str:
        return self.text or render_listing(Form.TABLE, self.listing, heading=self.heading)

    def _repr_html_(self) -> str:
        if self.text:
            return text_html(self.text)
        return text_html(self.heading) + listing_html(self.listing)


def listing_html(listing: Listing, *, total: int | None = None) -> str:
    """Formats a listing as an HTML table with at most 100 rows.

    Each value is escaped, since anybody may have written the data. If the listing contains only a
    part of the rows, `total` is the number of all rows.
    """
    places = [place for place, column in enumerate(listing.columns) if column not in listing.wide]
    count = len(listing.rows) if total is None else total
    head = "".join(f"<th>{escape(listing.columns[place])}</th>" for place in places)
    body = "".join(
        f"<tr>{''.join(_cell_html(row[place], listing) for place in places)}</tr>"
        for row in listing.rows[:_SHOWN_ROWS]
    )
    more = (
        f"<p>{min(len(listing.rows), _SHOWN_ROWS):,} of {count:,} rows</p>"
        if count > min(len(listing.rows), _SHOWN_ROWS)
        else ""
    )
    if not listing.rows and listing.empty:
        return f"<p>{escape(listing.empty)}</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def text_html(text: str) -> str:
    """Formats a text as preformatted HTML. Returns "" for an empty text."""
    return f"<pre>{escape(text.rstrip())}</pre>" if text.strip() else ""


def _cell_html(value: object, listing: Listing) -> str:
    text = "" if value is None and listing.is_report else cell_text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{escape(text)}</td>"
