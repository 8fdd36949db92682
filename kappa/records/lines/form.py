"""The forms that a file of events can have, by the names that commands use."""

from __future__ import annotations

from enum import StrEnum


class Given(StrEnum):
    """The form of a file of events: unchanged lines, lines of JSON, CSV, or Parquet."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
