"""Test cases of a project: files with events, and files with the rows expected from them.

The rows in `tests/rows/` are expected from the events in `events/`. Each folder
`tests/NAME/events/` is a further case; its expected rows are in `tests/NAME/rows/`. A file
`TABLE.ndjson` contains all rows of a table or view. `PIPELINE.rejects.ndjson` contains the rejects
of a pipeline, if there are any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kappa.base.errors import UsageError
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.develop.row_changes import Row, TableChange, table_change
from kappa.develop.sample import FOLDER, event_files, read_events
from kappa.records.decode.raw_records import RawRecord
from kappa.serving.query.render import object_line

TESTS = "tests"
ROWS = "rows"
_SUFFIX = ".ndjson"


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: a folder of events, and a folder with the rows expected from these events."""

    name: str
    events: Path
    rows: Path

    def records(self, pipeline: Pipeline) -> tuple[RawRecord, ...]:
        """Reads the events for the topics of a pipeline.

        Raises UsageError, with the file and line, if an event cannot be read.
        """
        return tuple(
            record
            for topic in pipeline.topics
            for record in read_events(event_files(self.events, topic.name), topic).records
        )


def project_cases(project: Path) -> tuple[Case, ...]:
    """Lists the test cases of a project."""
    tests = project / TESTS
    found = [Case(FOLDER, project / FOLDER, tests / ROWS)] if (project / FOLDER).is_dir() else []
    found += [
        Case(f"{TESTS}/{folder.parent.name}", folder, folder.parent / ROWS)
        for folder in sorted(tests.glob(f"*/{FOLDER}"))
        if folder.is_dir()
    ]
    return tuple(found)


def compare_rows(
    case: Case,
    pipeline: Pipeline,
    rows: Mapping[str, Sequence[Row]],
    keys: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[str, Path, TableChange | None]]:
    """Compares the rows of a pipeline's tables with the files of expected rows.

    `rows` maps a table to its actual rows, and `keys` maps a table to its keys. Yields (table,
    file, difference) for each table whose rows differ from its file. The difference is None if the
    file does not exist. Raises UsageError, with the line, if a line in a file is not a row.
    """
    for table, found in rows.items():
        file = rows_file(case, pipeline, table)
        expected = read_rows(file)
        if expected is None:
            if found or table != REJECTS:
                yield table, file, None
            continue
        change = table_change(table, expected, found, keys.get(table, ()))
        if not change.is_none:
            yield table, file, change


def rows_file(case: Case, pipeline: Pipeline, table: str) -> Path:
    """Returns the path of the file that contains the expected rows of a table."""
    name = f"{pipeline.name}.{table}" if table == REJECTS else table
    return case.rows / f"{name}{_SUFFIX}"


def surplus_files(case: Case, expected: Iterable[Path]) -> tuple[Path, ...]:
    """Lists the files of expected rows in a case that belong to no table.

    `expected` contains the files that belong to a table.
    """
    return tuple(sorted({*case.rows.glob(f"*{_SUFFIX}")} - {*expected}))


def write_rows(file: Path, rows: Iterable[Row]) -> None:
    """Replaces the content of a file with rows, as one JSON object per line.

    If `file` is for rejects and there are no rows, the file is deleted instead.
    """
    text = "".join(object_line(row.keys(), row.values()) for row in rows)
    if not text and file.stem.endswith(f".{REJECTS}"):
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def read_rows(file: Path) -> list[Row] | None:
    """Reads the rows in a file. Returns None if the file does not exist.

    Raises UsageError, with the number of the line, if a line is not a JSON object.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    found = list[Row]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{file}:{number}: this is not JSON: {error}", hint=_WRITES) from None
        if not isinstance(row, dict):
            raise UsageError(f"{file}:{number}: this is not a row", hint=_WRITES)
        found.append(row)
    return found


_WRITES = "a row is an object a line; kappa test --update writes the rows that come out"
