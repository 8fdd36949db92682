"""Events as lines of text, read by a regular expression: the logs of programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.described import described
from kappa.declare.formats.texts import check_plain, decoded_text, text_check
from kappa.declare.formats.time_layout import time_check
from kappa.declare.values.columns import Column, Scalar
from kappa.declare.values.reason import Reason, Rejected, shown
from kappa.declare.values.value import Check

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
    r"""The format of one line of text a record, which a regular expression reads.

    `pattern` is in Python's syntax, matches the whole line, and its named groups are the fields. A
    group that takes no part in a match is a missing field. A text that is exactly `null` is null.
    `times` gives the layout of times that are not RFC 3339's, by column, as in Python's `strptime`;
    times without a zone are UTC.

    `format="access-log"` is a ready one for logs of web servers, in the common and the combined
    format: its fields are host, ident, user, at, request, method, path, protocol, status, bytes,
    referer, agent.

    Example:
        Topic(
            "lines",
            event="at timestamp not null, level string, message string",
            format=Text(
                r"(?P<at>\S+ \S+) \[(?P<level>[A-Z]+|-)\] (?P<message>.*)",
                times={"at": "%Y-%m-%d %H:%M:%S"},
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
                f"{source}: format text has the pattern {described(pattern)}, which is no regular "
                f"expression: {error}"
            ) from None
        if not isinstance(pattern, str) or not named:
            raise DeclarationError(
                f"{source}: format text has a pattern without a named group",
                hint=r"name each field: (?P<level>[A-Z]+) (?P<message>.*)",
            )
        for option, given, kind in (("times", times, Mapping), ("null", null, str)):
            if not isinstance(given, kind | None):
                raise DeclarationError(
                    f"{source}: format text has {described(given)} for {option}",
                    hint='write times={"at": "%d/%m/%Y %H:%M:%S"}, null="-"',
                )
        try:
            for layout in (times or {}).values():
                time_check(str(layout))
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: format text: {error.message}", hint=error.hint
            ) from None
        set_field = object.__setattr__
        set_field(self, "pattern", pattern)
        set_field(self, "times", tuple(sorted((times or {}).items())))
        set_field(self, "null", null)
        set_field(self, "source", source)

    def lines(self) -> Iterator[str]:
        """Yields its name and pattern, and what else is declared."""
        yield f"format text {self.pattern!r}"
        for name, layout in self.times:
            yield f"time {name} as {layout!r}"
        if self.null is not None:
            yield f"null is {self.null!r}"

    def event(self) -> None:
        """Returns None: the topic declares its events."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Refuses columns with parts, those without a group, and layouts of none."""
        groups = re.compile(self.pattern, re.ASCII).groupindex
        check_plain(columns, groups, "format text", by_schema=by_schema)
        types = {column.name: column.type for column in columns}
        for name, _ in self.times:
            # A group that is no column has no type that could be wrong.
            if types.get(name, _TIME if name in groups else None) != _TIME:
                raise DeclarationError(
                    f"times names {name}, which is no column of type timestamp",
                    hint="name a column, and declare it as a timestamp",
                )

    def reader(self, columns: Sequence[Column]) -> TextReader:
        """Returns a reader of lines."""
        del columns
        return TextReader(
            re.compile(self.pattern, re.ASCII),
            self.null,
            {name: time_check(layout) for name, layout in self.times},
        )

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Raises UsageError: a pattern reads lines, and writes none."""
        del fields, columns
        raise UsageError(
            "an event of format text is a line, and is given as its fields",
            hint='give the line itself: Event(b"2024-01-31 12:00:00 [INFO] started")',
        )


@dataclass(frozen=True, slots=True)
class TextReader:
    """The reader of lines by an expression."""

    expression: re.Pattern[str]
    null: str | None
    times: Mapping[str, Check]

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the groups of a line. Raises Rejected if the expression does not match it all."""
        text = decoded_text(value).removesuffix("\n").removesuffix("\r")
        found = self.expression.fullmatch(text)
        if found is None:
            raise Rejected(Reason.NO_MATCH, f"the pattern does not match {shown(text)}")
        null = self.null
        return {
            name: None if part == null else part
            for name, part in found.groupdict().items()
            if part is not None
        }

    def check(self, column: Column) -> Check:
        """Returns the check of a column's texts; a time's by its layout."""
        return self.times.get(column.name) or text_check(column.type)
