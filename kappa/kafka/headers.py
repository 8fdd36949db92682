"""Reads a record's headers as pairs of name and value, including names that are not UTF-8.

In a name that is not UTF-8, each invalid byte is replaced by U+FFFD, as in Kafka's Java clients. So
such a name never equals the name of a header that Kappa uses. The record and its other headers are
handled as usual.

confluent_kafka cannot decode a name that is not UTF-8. So records with such a name are read a
second time, with librdkafka's C interface (bulk_reader.py).
"""

from __future__ import annotations

from collections.abc import Generator
from operator import methodcaller
from typing import Any

from kappa.base.errors import Broken
from kappa.kafka.broker_requests import Options
from kappa.kafka.consumers import Refuse

Headers = tuple[tuple[str, bytes | None], ...]

# The binding raises with a list that must not be read: the list has null pointers in place of
# names. In a call from Python code the interpreter may skip that check; `methodcaller` never skips
# it.
_headers = methodcaller("headers")


def decoded_headers(message: Any) -> Headers | None:
    """Returns a message's headers, or None if confluent_kafka cannot decode a name."""
    try:
        found = _headers(message)
    except SystemError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        return None
    return tuple((str(name), value) for name, value in found or ())


class HeadersAgain:
    """A consumer that reads the headers of some records of a partition a second time.

    The records must be requested in the order of their offsets.
    """

    def __init__(
        self,
        options: Options,
        refuse: Refuse,
        topic: str,
        partition: int,
        end: int,
    ) -> None:
        """Stores the arguments for the consumer, which is created at the first request.

        No record at or after the offset `end` may be requested.
        """
        self._options = options
        self._refuse = refuse
        self._place = topic, partition
        self._end = end
        self._found: Generator[tuple[int, Headers]] | None = None

    def of(self, offset: int) -> Headers:
        """Reads the headers of the record at `offset`.

        Raises Broken if the partition's log no longer contains the record.
        """
        if self._found is None:
            self._found = self._read(offset)
        for at, headers in self._found:
            if at == offset:
                return headers
            if at > offset:
                break
        raise Broken(
            f"the log lost offset {offset} of {self._place[0]} partition {self._place[1]} while "
            "it was read",
            hint="run it again: it reads what is there now",
        )

    def close(self) -> None:
        """Closes the consumer that reads records a second time."""
        if self._found is not None:
            self._found.close()

    def _read(self, start: int) -> Generator[tuple[int, Headers]]:
        # Imported late: the module loads a compiler, which takes a second, and is hardly ever
        # needed.
        from kappa.kafka.bulk_reader import BulkReader  # noqa: PLC0415

        with BulkReader(self._options, self._refuse, *self._place, start) as reader:
            for columns in reader.read(self._end):
                for at, headers in zip(
                    columns.offsets.tolist(), columns.headers.to_pylist(), strict=True
                ):
                    yield at, tuple((each["key"], each["value"]) for each in headers or ())
