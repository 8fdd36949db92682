"""Parses CSV to rows of texts, and texts to values of a type. Pure.

CSV follows RFC 4180: commas, double quotes, UTF-8. The parser does not guess the notation: a file
must use commas, and spaces are part of the values. An empty value is null, and an empty value in
quotes is the empty text, as in PostgreSQL. Values are checked like the fields of an event
(value.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal as Number
from functools import cache

from kappa.declare.values.columns import INTEGERS, Decimal, Scalar, Type
from kappa.declare.values.reason import Rejected
from kappa.declare.values.value import Check, check_of

_END = re.compile(r"\r?\n|\Z")
_BOM = "\ufeff"
_LONE_RETURN = "a carriage return is in the middle of a line: quote the value that has it"

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_TRUTH = {"true": True, "false": False}
# Numbers as programs print them: 007 is a text, and so is a number that would lose digits.
_PRINTED_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_PRINTED = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
# A double keeps so many digits of every number.
_EXACT_DIGITS = 15


class CsvError(ValueError):
    """The error for a text that is not valid CSV. `line` is the number of the invalid line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def csv_rows(content: bytes) -> Iterator[tuple[int, Sequence[str | None]]]:
    """Yields each row of a CSV file, with the number of the row's first line.

    Raises CsvError if the file is not valid CSV in UTF-8.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CsvError(line, f"byte {error.start} is not UTF-8") from None
    yield from text_rows(text.removeprefix(_BOM))


def text_rows(text: str, separator: str = ",") -> Iterator[tuple[int, Sequence[str | None]]]:
    """Yields each row of a CSV text, with the number of the row's first line.

    Raises CsvError if the text is not valid CSV.
    """
    place, line = 0, 1
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        whole = text[place:end].removesuffix("\r")
        if '"' not in whole:
            if "\r" in whole:
                raise CsvError(line, _LONE_RETURN)
            yield line, [value or None for value in whole.split(separator)]
            place, line = end + 1, line + 1
            continue
        values, end = _quoted_row(text, place, line, separator)
        yield line, values
        line += text.count("\n", place, end)
        place = end


@cache
def _value_in_quotes(separator: str) -> re.Pattern[str]:
    # The possessive match gives no quote back, so a text without an end costs one pass.
    return re.compile(rf'"(?P<quoted>(?:[^"]+|"")*+)"|(?P<plain>[^"{re.escape(separator)}\r\n]*)')


def _quoted_row(text: str, place: int, line: int, separator: str) -> tuple[list[str | None], int]:
    """Returns the values of a row with quotes, and the position after the end of the row.

    Raises CsvError if the row is not valid.
    """
    values: list[str | None] = []
    value = _value_in_quotes(separator)
    while True:
        found = value.match(text, place)
        assert found is not None, "a plain value may be empty"
        quoted = found["quoted"]
        values.append(found["plain"] or None if quoted is None else quoted.replace('""', '"'))
        place = found.end()
        if text.startswith(separator, place):
            place += 1
        elif (end := _END.match(text, place)) is not None:
            return values, end.end()
        else:
            raise CsvError(line, _why_wrong(text, place, found))


def _why_wrong(text: str, place: int, found: re.Match[str]) -> str:
    if text[place] == "\r":
        return _LONE_RETURN
    if text[place] == '"' and found.end() == found.start():
        return "a quote is opened and never closed"
    if text[place] == '"':
        return (
            f"a quote is within the value {found['plain']}: quote the value, and double the quote"
        )
    return "text follows a closed quote: a quote within a value is written twice"


def text_reader(kind: Type) -> Check:
    """Returns the function that parses texts to values of a type that is not an array or a struct.

    The function raises Rejected if a text is not a valid value, like the function of `check_of`.
    """
    check = check_of(kind)
    match kind:
        case Scalar("boolean"):
            return lambda text, name: check(_TRUTH.get(text.lower(), text), name)
        case Scalar(scalar) if scalar in INTEGERS:
            return lambda text, name: check(int(text) if _WHOLE.fullmatch(text) else text, name)
        case Scalar("double" | "float") | Decimal():
            return lambda text, name: check(Number(text) if _NUMBER.fullmatch(text) else text, name)
        case _:
            return check


def type_of_texts(texts: Iterable[str | None]) -> Type:
    """Returns the first type for which all texts of a column are valid.

    None in `texts` means null, and is valid for each type. The types are tried in this order:
    boolean, bigint, double, date, timestamp. If none of them is valid for all texts, or if all
    texts are null, the type is string.
    """
    there = {text for text in texts if text is not None}
    fits: dict[str, Callable[[str], bool]] = {
        "boolean": lambda text: text.lower() in _TRUTH,
        "bigint": lambda text: bool(_PRINTED_WHOLE.fullmatch(text)) and _is_text_of("bigint", text),
        "double": _is_exact,
        "date": lambda text: _is_text_of("date", text),
        "timestamp": lambda text: _is_text_of("timestamp", text),
    }
    found = (kind for kind, fit in fits.items() if there and all(map(fit, there)))
    return Scalar(next(found, "string"))


def _is_exact(text: str) -> bool:
    return bool(_PRINTED.fullmatch(text)) and sum(map(str.isdigit, text)) <= _EXACT_DIGITS


def _is_text_of(kind: str, text: str) -> bool:
    try:
        text_reader(Scalar(kind))(text, "")
    except Rejected:
        return False
    return True
