"""Parses the bytes of a JSON object to the fields of an event, as Python values. Pure.

A value must be exactly one JSON object in UTF-8 (RFC 8259). Repeated fields, and all other texts
whose meaning depends on the parser, are rejected. `kappa/records/record.py` converts the fields to
the event's columns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any

from kappa.declare.values.reason import Reason, Rejected, kind_of, show_value

# Deeper than any event, and far from the end of the JSON parser's stack. That end depends on the
# caller, and a record must not be valid on one path and too deep on another.
DEEPEST = 64
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
# Python refuses integers beyond 4,300 digits, by a setting of the process; Kappa's limit is not a
# setting. A shorter text cannot have such an integer, and is read without a look at each integer.
_LONGEST_INTEGER = 4_000


class JsonFormat:
    """A parser of events in JSON."""

    def __init__(self, *, exact: bool) -> None:
        """Creates a parser. If `exact` is True, numbers are decoded with all digits.

        Otherwise, numbers with a fraction or an exponent are decoded as floats.
        """
        self._parse = _json_parser(_exact_number if exact else float, None)
        self._parse_long = _json_parser(_exact_number if exact else float, _checked_integer)

    def fields(self, value: bytes) -> dict[str, Any]:
        """Parses the fields of an event.

        Raises Rejected if the bytes are not exactly one JSON object with a single meaning.
        """
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise Rejected(
                Reason.NOT_UTF8, f"byte {error.start} of the value is not UTF-8"
            ) from None
        if text.startswith("\ufeff"):
            raise Rejected(Reason.BYTE_ORDER_MARK, "the value begins with a byte order mark")
        # No text has more levels than opening brackets, so nearly all are spared the count.
        if text.count("{") + text.count("[") > DEEPEST and _bracket_depth(text) > DEEPEST:
            raise Rejected(Reason.TOO_DEEP, f"the value is nested deeper than {DEEPEST} levels")
        try:
            event = (self._parse if len(text) <= _LONGEST_INTEGER else self._parse_long)(text)
        except json.JSONDecodeError as error:
            raise Rejected(
                Reason.MALFORMED, f"not one JSON value: {error.msg} at character {error.pos}"
            ) from None
        if not isinstance(event, dict):
            raise Rejected(Reason.NOT_AN_OBJECT, f"the value is {kind_of(event)}, not an object")
        # Only an escape can make half a surrogate pair: UTF-8 itself has none.
        if "\\u" in text:
            _refuse_surrogates(event)
        return event


def exact_value(text: str) -> Any:
    """Parses a JSON text that is a single value. Numbers are parsed with all digits.

    Raises JSONDecodeError if the text is not JSON, and Rejected if its meaning depends on the
    parser.
    """
    return _json_parser(_exact_number, None)(text)


def _json_parser(
    parse_float: Callable[[str], Any], parse_int: Callable[[str], int] | None
) -> Callable[[str], Any]:
    return json.JSONDecoder(
        object_pairs_hook=_unique_object,
        parse_constant=_refuse_constant,
        parse_float=parse_float,
        parse_int=parse_int,
    ).decode


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Rejected(Reason.REPEATED_FIELD, f"{show_value(name)} stands twice in one object")
    return made


def _refuse_constant(word: str) -> None:
    raise Rejected(Reason.MALFORMED, f"{word} is not JSON")


def _checked_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise Rejected(Reason.OUT_OF_RANGE, f"a number has {len(text)} digits")
    return int(text)


def _exact_number(text: str) -> Number:
    try:
        return Number(text)
    except InvalidOperation:
        raise Rejected(Reason.OUT_OF_RANGE, f"{show_value(text)} is beyond any number") from None


def _refuse_surrogates(found: Any) -> None:
    match found:
        case str():
            if not found.isascii() and any("\ud800" <= letter <= "\udfff" for letter in found):
                raise Rejected(
                    Reason.LONE_SURROGATE,
                    "a text holds half of a surrogate pair, which is not a character",
                )
        case dict():
            for name, value in found.items():
                _refuse_surrogates(name)
                _refuse_surrogates(value)
        case list():
            for value in found:
                _refuse_surrogates(value)


def _bracket_depth(text: str) -> int:
    """Returns the greatest depth of nested brackets in a JSON text, not counting strings.

    For a text that is not JSON, the result has no meaning, but is always the same.
    """
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
