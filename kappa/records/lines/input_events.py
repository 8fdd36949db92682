"""Reads the events in a file: unchanged lines, lines of JSON, or rows of CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kappa.base.errors import UsageError
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.text_events import Text
from kappa.declare.formats.topic_formats import is_framed
from kappa.declare.topic import Topic
from kappa.declare.values.csv_text import CsvError, text_rows
from kappa.kafka.producer import ProducedRecord
from kappa.records.lines.events import EventWriter
from kappa.records.lines.form import Given

# A longer row of CSV has lost the end of a value in quotes.
_LONGEST_ROW = 32_000_000

# A record, and its place in the file, with which error messages begin: `orders.csv line 7`.
Placed = tuple[str, ProducedRecord]
_Each = TypeVar("_Each")
_Made = TypeVar("_Made")


def given_as(file: str, topic: Topic | None) -> Given:
    """Returns the form of a file, by the suffix of its name and its topic's format.

    - A `.parquet` file has the form PARQUET.
    - For a topic in CSV or text, or without a declaration, any other file has the form LINES.
    - For other topics, a `.csv` file has the form CSV. Any other file has the form LINES if an
      unchanged line can be a record of the topic, and otherwise JSONL.
    """
    if file.endswith(".parquet"):
        return Given.PARQUET
    if topic is None or isinstance(topic.format, Csv | Text):
        return Given.LINES
    if file.endswith(".csv"):
        return Given.CSV
    return Given.LINES if is_plain(topic) else Given.JSONL


def is_plain(topic: Topic) -> bool:
    """Returns True if a line of input can be a record's value without conversion."""
    return isinstance(topic.format, Csv | Text | Json) and not is_framed(topic.format)


def placed_lines(
    lines: Iterable[bytes], record_of: Callable[[bytes], ProducedRecord], file: str = ""
) -> Iterator[Placed]:
    """Yields pairs (place, record) for the lines that are not blank.

    `record_of` creates the record. The place is a text like `orders.csv line 7`. Raises UsageError,
    which names the line, if `record_of` cannot create a record from the line.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = placed(file, "line", number)
            yield place, _make_value(place, record_of, line.rstrip(b"\r\n"))


def csv_events(topic: Topic, lines: Iterable[bytes], file: str = "") -> Iterator[Placed]:
    """Yields pairs (place, record) for the rows of a CSV file.

    The first line must name the columns. The place is a text like `orders.csv line 7`. Raises
    UsageError, which names the line, if the file or an event is not valid.
    """
    writer = EventWriter(topic)
    rows = _rows(lines, file)
    for place, header in rows:
        names = [name or "" for name in header]
        twice = [name for number, name in enumerate(names) if name in names[:number]]
        if twice or not all(names):
            what = f"names {twice[0]} twice" if twice else "names a column without a name"
            raise UsageError(f"{place} {what}", hint="the first line names the columns: id,amount")
        record_of = _make_value(place, writer.of_texts, names)
        break
    for place, row in rows:
        if len(row) != len(names):
            raise UsageError(
                f"{place} has {len(row)} value{'' if len(row) == 1 else 's'}, "
                f"and the header names {len(names)}",
                hint="quote a value with a comma in it; write an empty value for null",
            )
        yield place, _make_value(place, record_of, row)


def parquet_events(topic: Topic, path: Path) -> Iterator[Placed]:
    """Yields pairs (place, record) for the rows of a Parquet file.

    The place is a text that names the row. Raises UsageError, which names the row, if an event is
    not valid.
    """
    from kappa.records.lines.parquet import rows_of  # noqa: PLC0415  # it takes Arrow

    writer = EventWriter(topic)
    rows = rows_of(path, lambda names: _make_value(str(path), writer.ensure_known, names))
    for number, row in enumerate(rows, start=1):
        place = placed(str(path), "row", number)
        yield place, _make_value(place, writer.of_row, row)


def placed_rows(topic: Topic, rows: Iterable[Mapping[str, Any]]) -> Iterator[Placed]:
    """Yields pairs (place, record) for `rows`, which map column names to values.

    The place is a text that names the row by its number from 1. Raises UsageError, which names the
    row, if a row cannot become an event.
    """
    writer = EventWriter(topic)
    for number, row in enumerate(rows, start=1):
        place = f"event {number:d}"

        def record_of(given: Mapping[str, Any]) -> ProducedRecord:
            writer.ensure_known(given)
            return writer.of_row(given)

        yield place, _make_value(place, record_of, row)


def placed(file: str, what: str, number: int) -> str:
    """Returns the text for the place of a line or row in errors: `orders.csv line 7`.

    An empty `file` means standard input.
    """
    return f"{file} {what} {number:d}".lstrip()


def _make_value(place: str, make: Callable[[_Each], _Made], given: _Each) -> _Made:
    try:
        return make(given)
    except UsageError as error:
        raise UsageError(f"{place} {error.message}", hint=error.hint) from error


def _rows(lines: Iterable[bytes], file: str) -> Iterator[tuple[str, Sequence[str | None]]]:
    """Yields pairs (place, values) for the rows of CSV lines.

    Only one row at a time is in memory. A row ends at the end of a line, unless that end is within
    quotes.
    """
    row, begin = b"", 1
    for number, line in enumerate(lines, start=1):
        row, begin = (row + line, begin) if row else (line, number)
        if row.count(b'"') % 2 and len(row) < _LONGEST_ROW:
            continue
        yield from _read(row, begin, file)
        row = b""
    yield from _read(row, begin, file)


def _read(row: bytes, line: int, file: str) -> Iterator[tuple[str, Sequence[str | None]]]:
    place = placed(file, "line", line)
    if not row.strip():
        return
    try:
        text = row.decode()
        if line == 1:
            text = text.removeprefix("\ufeff")
        for _, values in text_rows(text):
            yield place, values
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{place} is not UTF-8: byte {error.start}", hint="write the file in UTF-8"
        ) from None
    except CsvError as error:
        raise UsageError(f"{place} is not CSV: {error}") from None
