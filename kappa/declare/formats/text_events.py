"""Events as lines of text, such as log files, parsed with a regular expression. Pure.

If a time is not in RFC 3339, it is parsed with a declared layout, for example `%d/%b/%Y %H:%M:%S`.
Python's `strptime` is not used: its result depends on the locale of the process, and rows must not
depend on the locale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.formats.text_values import check_plain, decoded_text, text_check
from kappa.declare.options import describe_value, error_prefix
from kappa.declare.values.columns import Column, Scalar
from kappa.declare.values.reason import Reason, Rejected, show_value
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LAYOUT_PARTS = {
    "Y": r"(?P<year>[0-9]{4})",
    "m": r"(?P<month>0[1-9]|1[0-2])",
    "b": rf"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "d": r"(?P<day>0[1-9]|[12][0-9]|3[01])",
    "H": r"(?P<hour>[01][0-9]|2[0-3])",
    "M": r"(?P<minute>[0-5][0-9])",
    "S": r"(?P<second>[0-5][0-9])",
    "f": r"(?P<fraction>[0-9]{1,6})",
    "z": r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])",
    "%": "%",
}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAYOUT_HINT = (
    "it has the year (%Y), the month (%m, or its English name %b) and the day (%d), each once, "
    "and may have %H %M %S %f %z; without %z times are UTC"
)


_QUOTED = r'(?:[^"\\]|\\.)*'
# Apache's and nginx's common log format, with or without the two fields of the combined one.
ACCESS_PATTERN = (
    r"(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<at>[^\]]+)\] "
    r'"(?P<request>(?P<method>[A-Z]+) (?P<path>[^" ]+)(?: (?P<protocol>[^" ]+))?|'
    rf'{_QUOTED})" (?P<status>[0-9]{{3}}) (?P<bytes>[0-9]+|-)'
    rf'(?: "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})")?'
)
_TIME = Scalar("timestamp")
ACCESS_TIMES = {"at": "%d/%b/%Y:%H:%M:%S %z"}


@dataclass(frozen=True, slots=True, init=False)
class Text:
    r"""The format of records that each contain one line of text, parsed by a regular expression.

    `pattern` is in Python's syntax. The pattern must match the whole line, and must contain a named
    group for each field. If a group does not participate in a match, the field is missing. A text
    that equals `null` is null. `times` contains, by column, the layouts of times that are not in
    RFC 3339, as for Python's `strptime`. A time without a zone is in UTC.

    `format="access-log"` is a predefined format for the logs of web servers, common and combined.
    Its fields are host, ident, user, at, request, method, path, protocol, status, bytes, referer,
    agent.

    Example:
        Topic(
            "lines",
            event="happened_at timestamp not null, level string, message string",
            format=Text(
                r"(?P<happened_at>\S+ \S+) \[(?P<level>[A-Z]+|-)\] (?P<message>.*)",
                times={"happened_at": "%Y-%m-%d %H:%M:%S"},
                null="-",
            ),
        )
    """

    pattern: str
    times: tuple[tuple[str, str], ...]
    null: str | None
    source: Source = field(compare=False)

    def __init__(
        self, pattern: str, *, times: Mapping[str, str] | None = None, null: str | None = None
    ) -> None:
        source = Source.of_caller()
        try:
            named = re.compile(pattern, re.ASCII).groupindex
        except (re.error, TypeError) as error:
            raise DeclarationError(
                f"{source}: format text has the pattern {describe_value(pattern)}, which is not "
                f"a regular expression: {error}"
            ) from None
        if not isinstance(pattern, str) or not named:
            raise DeclarationError(
                f"{source}: format text has a pattern without a named group",
                hint=r"name each field: (?P<level>[A-Z]+) (?P<message>.*)",
            )
        for option, given, kind in (("times", times, Mapping), ("null", null, str)):
            if not isinstance(given, kind | None):
                raise DeclarationError(
                    f"{source}: format text has {describe_value(given)} for {option}",
                    hint='write times={"happened_at": "%d/%m/%Y %H:%M:%S"}, null="-"',
                )
        with error_prefix(f"{source}: format text"):
            for layout in (times or {}).values():
                time_check(str(layout))
        set_field = object.__setattr__
        set_field(self, "pattern", pattern)
        set_field(self, "times", tuple(sorted((times or {}).items())))
        set_field(self, "null", null)
        set_field(self, "source", source)

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        They are the name of the format, its pattern and its other options.
        """
        yield f"format text {self.pattern!r}"
        for name, layout in self.times:
            yield f"time {name} as {layout!r}"
        if self.null is not None:
            yield f"null is {self.null!r}"

    def declared_event(self) -> None:
        """Returns None, because the topic itself declares the event."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if columns do not match the pattern.

        A column must not be an array or a struct, and the pattern must contain a group with the
        column's name. A column with a layout must be a timestamp.
        """
        groups = re.compile(self.pattern, re.ASCII).groupindex
        check_plain(columns, groups, "format text", by_schema=by_schema)
        types = {column.name: column.type for column in columns}
        for name, _ in self.times:
            # A group that is not a column has no type that could be wrong.
            if types.get(name, _TIME if name in groups else None) != _TIME:
                raise DeclarationError(
                    f"times names {name}, which is not a column of type timestamp",
                    hint="name a column, and declare it as a timestamp",
                )

    def event_reader(self, columns: Sequence[Column]) -> TextReader:
        """Returns a reader of lines for these columns."""
        del columns
        return TextReader(
            re.compile(self.pattern, re.ASCII),
            self.null,
            {name: time_check(layout) for name, layout in self.times},
        )

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Raises UsageError, because a pattern can parse lines but not produce them."""
        del fields, columns
        raise UsageError(
            "an event of format text is a line, and is given as its fields",
            hint='give the line itself: Event(b"2024-01-31 12:00:00 [INFO] started")',
        )


@dataclass(frozen=True, slots=True)
class TextReader:
    """A reader of lines that match a regular expression."""

    expression: re.Pattern[str]
    null: str | None
    times: Mapping[str, Check]

    def fields(self, value: bytes) -> dict[str, Any]:
        """Returns the texts that the named groups of the expression match in a line, by group name.

        A text that equals `null` becomes None. Raises Rejected unless the whole line matches the
        expression.
        """
        text = decoded_text(value).removesuffix("\n").removesuffix("\r")
        found = self.expression.fullmatch(text)
        if found is None:
            raise Rejected(Reason.NO_MATCH, f"the pattern does not match {show_value(text)}")
        null = self.null
        return {
            name: None if part == null else part
            for name, part in found.groupdict().items()
            if part is not None
        }

    def column_check(self, column: Column) -> Check:
        """Returns the function that converts a column's texts to the values in the row.

        If the column has a layout, its texts are parsed with that layout.
        """
        return self.times.get(column.name) or text_check(column.type)


def time_check(layout: str) -> Check:
    """Returns a function that parses times with this layout to microseconds since 1970, in UTC.

    Raises DeclarationError if the layout is not valid.
    """
    parts = re.split(r"%(.?)", layout)
    used = [part for part in parts[1::2] if part != "%"]
    unknown = [f"%{part}" for part in used if part not in _LAYOUT_PARTS]
    if (
        unknown
        or len(set(used)) < len(used)
        or not {"Y", "d"} < {*used}
        or not (("m" in used) ^ ("b" in used))
    ):
        what = f"has {unknown[0]}, which is not known" if unknown else "names no day exactly once"
        raise DeclarationError(f"the layout {layout!r} {what}", hint=_LAYOUT_HINT)
    expression = re.compile(
        "".join(
            _LAYOUT_PARTS[part] if number % 2 else re.escape(part)
            for number, part in enumerate(parts)
        )
    )

    def check_time(text: str, name: str) -> int:
        found = expression.fullmatch(text)
        if found is None:
            raise Rejected(
                Reason.BAD_FORMAT, f"{name} is {show_value(text)}, not a time like {layout}"
            )
        micros = _micros_of_parts(found.groupdict())
        if micros is None or not FIRST_MICROS <= micros <= LAST_MICROS:
            raise Rejected(
                Reason.OUT_OF_RANGE,
                f"{name} is {show_value(text)}, a time that is not in the calendar",
            )
        return micros

    return check_time


def _micros_of_parts(parts: dict[str, str | None]) -> int | None:
    month = parts.get("month")
    number = _MONTHS.index(str(parts["name"]).lower()) + 1 if month is None else int(month)
    try:
        day = date(int(parts["year"] or 0), number, int(parts["day"] or 0)).toordinal()
    except ValueError:
        return None
    hour, minute, second = (int(parts.get(each) or 0) for each in ("hour", "minute", "second"))
    minutes = ((day - _EPOCH_DAY) * 24 + hour) * 60 + minute - _zone_minutes(parts.get("zone"))
    return (minutes * 60 + second) * 1_000_000 + int((parts.get("fraction") or "").ljust(6, "0"))


def _zone_minutes(zone: str | None) -> int:
    """Returns the offset of a time zone from UTC in minutes, positive east of UTC."""
    if zone in {None, "Z"}:
        return 0
    digits = str(zone).replace(":", "")
    minutes = int(digits[1:3]) * 60 + int(digits[3:5])
    return -minutes if digits[0] == "-" else minutes
