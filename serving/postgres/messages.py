"""The messages of version 3 of the Postgres protocol, and errors with their SQLSTATE.

Source: PostgreSQL 16, "Frontend/Backend Protocol" and "PostgreSQL Error Codes".
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kappa.base.errors import Conflict, Damaged, KappaError, UsageError
from kappa.serving.access.roles import Forbidden
from kappa.serving.query.reader.client import ClientLeft
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.sandbox.question import Busy

SYNTAX_ERROR, READ_ONLY, UNSUPPORTED = "42601", "25006", "0A000"
PROTOCOL_VIOLATION, TOO_LARGE, TOO_MANY = "08P01", "54000", "53300"
SNAPSHOT_TOO_OLD, CANCELED = "72000", "57014"
# The code of each error that the text of a refused query shows; the first that fits is taken.
_OF_TEXT = (
    (r"syntax error|not one query|not one statement|more than one statement", SYNTAX_ERROR),
    (r"statement of the kind (explain|prepare|execute)", UNSUPPORTED),
    (r"statement of the kind", READ_ONLY),
    (r"there is no table|is served no more|Table with name", "42P01"),
    (r'Referenced (column|table) "|Could not find key', "42703"),
    (r"Ambiguous reference", "42702"),
    (r"No function matches|Function with name|does not exist!|is not a function", "42883"),
    (r"looks outside of the tables", "42501"),
    (r"Could not convert|Could not cast|invalid input syntax|out of range", "22P02"),
    (r"[Dd]ivision by zero", "22012"),
    (r"[Oo]verflow", "22003"),
    (r"must appear in the GROUP BY", "42803"),
    (r"not kept any more|nothing is kept", "72000"),
    (r"nested too deeply", "54001"),
    (r"Prepared statement needs|parameter", "42P02"),
)


class PostgresError(KappaError):
    """An error with an SQLSTATE code, as Postgres clients know it.

    If `fatal` is True, the error ends the connection.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", fatal: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.fatal = fatal


class Gone(Exception):
    """The signal that a connection has ended: the client has left, or the server has ended it."""


def as_postgres_error(error: KappaError | ClientLeft) -> PostgresError:
    """Converts an error of a query to an error with an SQLSTATE code."""
    if isinstance(error, PostgresError):
        return error
    if isinstance(error, ClientLeft):
        return PostgresError(CANCELED, "the query was cancelled, as its client asked")
    return PostgresError(_code_of(error), error.message, hint=error.hint)


def _code_of(error: KappaError) -> str:
    match error:
        case TooMuch():
            return CANCELED if "took longer" in error.message else "53200"
        case Busy():
            return "53000"
        case Forbidden():
            return "42501"
        case Damaged():
            return "XX001"
        case Conflict():
            return SNAPSHOT_TOO_OLD
    found = next((code for text, code in _OF_TEXT if re.search(text, error.message)), None)
    return found or ("42000" if isinstance(error, UsageError) else "58000")


def message(kind: bytes, content: bytes = b"") -> bytes:
    """Formats a message of the protocol: the letter `kind`, the length, and the content."""
    return kind + (len(content) + 4).to_bytes(4, "big") + content


def text_bytes(text: str) -> bytes:
    """Encodes a text for the protocol, with a zero byte at its end."""
    return text.replace("\0", "?").encode(errors="replace") + b"\0"


def error_message(error: PostgresError) -> bytes:
    """Formats an error as a message."""
    return _told(b"E", "FATAL" if error.fatal else "ERROR", error)


def notice_message(error: PostgresError) -> bytes:
    """Formats a warning as a message."""
    return _told(b"N", "WARNING", error)


def _told(kind: bytes, severity: str, error: PostgresError) -> bytes:
    fields = {"S": severity, "V": severity, "C": error.code, "M": error.message, "H": error.hint}
    listed = (name.encode() + text_bytes(value) for name, value in fields.items() if value)
    return message(kind, b"".join(listed) + b"\0")


def parameter_status(name: str, value: str) -> bytes:
    """Formats the message that informs the client of the value of a setting."""
    return message(b"S", text_bytes(name) + text_bytes(value))


def row_description(columns: Sequence[Mapping[str, Any]], formats: Sequence[int]) -> bytes:
    """Formats the message with the names and types of a result's columns.

    `formats` contains one code for each column, or one code for all columns: 0 for text and 1 for
    binary. If `formats` is empty, all columns are sent as text.
    """
    if len(formats) <= 1:
        formats = [*formats, 0][:1] * len(columns)
    parts = [struct.pack("!h", len(columns))]
    for column, form in zip(columns, formats, strict=True):
        oid, size, modifier = map(int, column["wire"])
        parts.append(text_bytes(str(column["name"])))
        parts.append(struct.pack("!ihihih", 0, 0, oid, size, modifier, form))
    return message(b"T", b"".join(parts))


def data_row(values: Iterable[str]) -> bytes:
    """Formats one row as a message. `values` are the row's values as text."""
    contents = [value.encode(errors="replace") for value in values]
    sized = (len(each).to_bytes(4, "big") + each for each in contents)
    return message(b"D", struct.pack("!h", len(contents)) + b"".join(sized))


class Fields:
    """Reads the fields in the content of a client's message, one after the other.

    The methods raise PostgresError if the content ends too soon.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def text(self) -> str:
        """Returns the next text of the message, which ends with a zero byte."""
        end = self._content.find(b"\0", self._place)
        if end < 0:
            raise self._too_short()
        found, self._place = self._content[self._place : end], end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise PostgresError(
                "22021", "a text of the client is not in UTF-8", hint="send UTF-8"
            ) from None

    def numbers(self, form: str) -> tuple[int, ...]:
        """Returns the next numbers of the message.

        `form` is the format of the numbers, as in Python's module `struct`.
        """
        packed = self.raw(struct.calcsize(f"!{form}"))
        return struct.unpack(f"!{form}", packed)

    def raw(self, count: int) -> bytes:
        """Returns the next `count` bytes of the message."""
        end = self._place + count
        if count < 0 or end > len(self._content):
            raise self._too_short()
        found, self._place = self._content[self._place : end], end
        return found

    def listed(self, form: str) -> tuple[int, ...]:
        """Returns the next list of numbers of the message. The list begins with its length.

        `form` is the format of one number, as in Python's module `struct`.
        """
        (count,) = self.numbers("h")
        return self.numbers(f"{max(count, 0)}{form}")

    def is_at_end(self) -> bool:
        """Returns True if all fields of the message have been read."""
        return self._place >= len(self._content)

    def _too_short(self) -> PostgresError:
        return PostgresError(
            PROTOCOL_VIOLATION, "a message of the client ends before its content does", fatal=True
        )


class ClientBytes(asyncio.StreamReader):
    """The bytes that arrive from a client.

    `on_left` is called when the client has closed the connection.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.on_left: Callable[[], None] = lambda: None

    def feed_eof(self) -> None:
        """Marks the end of the stream, and calls `on_left`."""
        super().feed_eof()
        self.on_left()

    def set_exception(self, exc: Exception) -> None:
        """Ends the stream because of a connection error, and calls `on_left`."""
        super().set_exception(exc)
        self.on_left()

    def has_bytes(self) -> bool:
        """Returns True if bytes have arrived that were not read yet."""
        return bool(self._buffer)  # type: ignore[attr-defined]  # asyncio's own, for a subclass

    async def read_message(self, most: int, seconds: float) -> tuple[bytes, bytes]:
        """Returns the letter and the content of the next message.

        This method waits for the beginning of the message without a limit, and then for the rest
        for at most `seconds`. Raises Gone if the client has left. If the message has more than
        `most` bytes, raises PostgresError and does not read the content.
        """
        try:
            kind = await self.readexactly(1)
            async with asyncio.timeout(seconds):
                length = int.from_bytes(await self.readexactly(4), "big", signed=True) - 4
                if not 0 <= length <= most:
                    raise PostgresError(
                        PROTOCOL_VIOLATION if length < 0 else TOO_LARGE,
                        f"a message announces {length} bytes, and one has at most {most >> 10} KiB",
                        hint="send a shorter text, or fewer values at once",
                        fatal=True,
                    )
                return kind, await self.readexactly(length)
        except TimeoutError:
            raise PostgresError(
                PROTOCOL_VIOLATION,
                f"a message was not whole after {seconds:g} s",
                hint="send it at once",
                fatal=True,
            ) from None
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Gone from error
