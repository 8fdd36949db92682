"""Parses the rows of a table from a CSV file in the project.

The values are parsed by the rules for the fields of an event (kappa/declare/values/value.py). This
module does no I/O except reading the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.options import describe_value, error_prefix
from kappa.declare.project_files import read_file_beside
from kappa.declare.values.columns import PLAIN_NAME, Array, Column, Scalar, Struct, parse_columns
from kappa.declare.values.csv_text import CsvError, csv_rows, text_reader, type_of_texts
from kappa.declare.values.reason import Rejected

_NAMED = 3
_TYPED = 'name their types: columns="currency string, rate decimal(10,4)"'

Values = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A CSV file with the rows of a table.

    `columns` contains the columns with declared types, and is empty if no types are declared.
    `path` is relative to the project's folder. Two objects are equal if the contents of their files
    are equal, even if their paths differ.
    """

    content: bytes = field(repr=False)
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    path: str = field(compare=False)
    # The beginning of errors: `FILE:LINE: table NAME`.
    where: str = field(compare=False)

    @property
    def digest(self) -> str:
        """Returns the SHA-256 of the file's content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    def __str__(self) -> str:
        # Versions hash this text, and birth certificates keep it.
        typed = f", columns {', '.join(map(str, self.columns))}" if self.columns else ""
        return f"rows of a file with SHA-256 {self.digest}{typed}"

    def line_error(self, line: int, why: str, *, hint: str = "") -> DeclarationError:
        """Returns the error about a line of the file."""
        return DeclarationError(f"{self.where}: {self.path}:{line}: {why}", hint=hint)


def seed_file(
    source: Source, where: str, path: object, columns: object, keys: tuple[str, ...]
) -> SeedFile:
    """Reads the CSV file that a table declares, without parsing its rows.

    Raises DeclarationError, with a message that begins with `where`, if the file cannot be read, or
    if `path` or `columns` is not valid.
    """
    if not isinstance(path, str) or not path:
        raise DeclarationError(
            f"{where} has {describe_value(path)} for its file, which is not a path",
            hint='name it from the folder of this file: file="rates.csv"',
        )
    with error_prefix(where):
        name, content = read_file_beside(path, source.file)
    return SeedFile(content, _declared_columns(where, columns), keys, name, where)


def _declared_columns(where: str, columns: object) -> tuple[Column, ...]:
    if columns is None:
        return ()
    if not isinstance(columns, str):
        raise DeclarationError(f"{where} has {describe_value(columns)} for columns", hint=_TYPED)
    with error_prefix(where):
        declared = parse_columns(columns)
    for column in declared:
        if isinstance(column.type, Array | Struct) or column.default is not None or column.was:
            raise DeclarationError(
                f"{where} has the column {column}, and a file has one plain value in each place",
                hint=f"write a name and a type without parts: {column.name} string",
            )
    return declared


@lru_cache(maxsize=16)
def seed_columns(seed: SeedFile) -> tuple[Column, ...]:
    """Returns the columns of a table's CSV file, in the order of the file's header.

    Raises the errors of `read_seed`.
    """
    return read_seed(seed)[0]


def read_seed(seed: SeedFile) -> tuple[tuple[Column, ...], Values]:
    """Parses the CSV file of a table. Returns its columns, and the values of each column.

    Raises DeclarationError, with the line of the file, if a row or a value is not valid, or if two
    rows have the same keys.
    """
    header, lines, texts = _read_texts(seed)
    columns = _typed_columns(seed, header, texts)
    values = [
        _read_values(seed, column, lines, of_column)
        for column, of_column in zip(columns, texts, strict=True)
    ]
    _check_keys(seed, columns, lines, values)
    return columns, values


def _read_texts(seed: SeedFile) -> tuple[list[str], list[int], list[list[str | None]]]:
    """Returns the names in the header, the line number of each row, and the texts of each column.

    Raises DeclarationError if the header or a row is not valid.
    """
    lines: list[int] = []
    try:
        rows = csv_rows(seed.content)
        _, first = next(rows, (1, ()))
        header = _checked_header(seed, first)
        texts: list[list[str | None]] = [[] for _ in header]
        for line, row in rows:
            if len(row) != len(header):
                raise seed.line_error(
                    line,
                    "the line is empty"
                    if row == [None]
                    else f"the row has {len(row)} value{'' if len(row) == 1 else 's'}, "
                    f"and the header names {len(header)}",
                    hint="quote a value with a comma in it; write an empty value for null",
                )
            lines.append(line)
            for of_column, value in zip(texts, row, strict=True):
                of_column.append(value)
    except CsvError as error:
        raise seed.line_error(error.line, str(error), hint="the file is CSV in UTF-8") from None
    return header, lines, texts


def _checked_header(seed: SeedFile, first: Sequence[str | None]) -> list[str]:
    if not any(first):
        raise seed.line_error(
            1, "there is no header", hint="name the columns in the first line: currency,rate"
        )
    seen: set[str] = set()
    for name in first:
        if name is None or not PLAIN_NAME.fullmatch(name) or name.startswith("_"):
            raise seed.line_error(
                1,
                f"the header has {'an empty name' if name is None else repr(name)}, and a column's"
                " name has letters a to z, digits and _, and begins with a letter",
                hint="columns are separated by commas, with no space beside them",
            )
        if name.lower() in seen:
            raise seed.line_error(1, f"the header has the column {name} twice")
        seen.add(name.lower())
    return [name for name in first if name is not None]


def _typed_columns(
    seed: SeedFile, header: Sequence[str], texts: Sequence[Sequence[str | None]]
) -> tuple[Column, ...]:
    if not seed.columns:
        return tuple(map(Column, header, map(type_of_texts, texts)))
    declared = {column.name: column for column in seed.columns}
    for name in (*header, *declared):
        if name not in declared or name not in header:
            raise seed.line_error(
                1,
                f"the header has a column {name}, and columns= does not"
                if name in header
                else f"the header has no column {name}, and columns= does",
                hint=f"the header names {', '.join(header)}",
            )
    return tuple(declared[name] for name in header)


def _read_values(
    seed: SeedFile, column: Column, lines: Sequence[int], texts: Sequence[str | None]
) -> list[Any]:
    read, found = text_reader(column.type), []
    for line, text in zip(lines, texts, strict=True):
        if text is None and not column.nullable:
            raise seed.line_error(line, f"{column.name} is null", hint="give the row a value there")
        try:
            found.append(None if text is None else read(text, column.name))
        except Rejected as rejected:
            raise seed.line_error(
                line, rejected.detail, hint="fix the value, or give the column another type"
            ) from None
    return found


def _check_keys(
    seed: SeedFile, columns: Iterable[Column], lines: Sequence[int], values: Values
) -> None:
    kinds = {column.name: column.type for column in columns}
    for key in seed.keys:
        if key not in kinds:
            raise seed.line_error(
                1,
                f"the header has no column {key}, which is a key",
                hint=f"it has {', '.join(kinds)}",
            )
        if kinds[key] in {Scalar("double"), Scalar("float")}:
            raise seed.line_error(
                1,
                f"the key {key} is of type {kinds[key]}, which has no exact equality",
                hint=_TYPED,
            )
    if not seed.keys:
        return
    places = list(kinds)
    of_keys = [values[places.index(key)] for key in seed.keys]
    first: dict[tuple[Any, ...], int] = {}
    repeated: list[str] = []
    for number, found in enumerate(zip(*of_keys, strict=True)):
        before = first.setdefault(found, number)
        if before != number:
            named = ", ".join(
                f"{name}={'null' if value is None else value}"
                for name, value in zip(seed.keys, found, strict=True)
            )
            repeated.append(f"lines {lines[before]} and {lines[number]} have {named}")
    if repeated:
        more = f" and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else ""
        raise seed.line_error(
            1,
            f"several rows have the same keys: {'; '.join(repeated[:_NAMED])}{more}",
            hint="its keys identify a row: give it other keys, or none",
        )
