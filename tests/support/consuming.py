"""A simple consumer, as a program that tests kill. It applies change sets to a book.

    python consuming.py command|events|topic NAME BOOK PROJECT

The program reads a table with `kappa changes -f`, or over HTTP, or it reads a sink's topic. It
starts at the position in its book.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from book import Book, row_text
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kappa.base.settings import load_settings
from kappa.replay.status.run_records import running, served_at
from kappa.state.store import open_store

_AGAIN_SECONDS = 0.2
_SILENT_SECONDS = 30.0
# `begin`, `rows` and `commit`, with what each has.
_Event = tuple[str, Any]


def apply(book: Book, head: Any, changes: Iterable[Any], cursor: str) -> None:
    """Applies one change set of a table to the book. The changes must fit the rows."""
    place = {"cursor": cursor, "offsets": head["offsets"]}
    before = book.place
    with book.change_set(head["kind"], cursor, place):
        if before and head["kind"] != "reset":
            _ensure_next(book, before, head)
        if head["cursor"] != cursor:
            book.fault(f"mixed: {cursor} ends {head['cursor']}")
        counted = {"insert": 0, "update": 0, "delete": 0}
        for change in changes:
            times = change.get("times", 1)
            counted[change["op"]] += times
            for row, act in ((change["before"], book.take_away), (change["after"], book.add)):
                if row is not None:
                    text = row_text(row)
                    keys = head["keys"]
                    act(json.dumps([row[key] for key in keys]) if keys else text, text, times)
        if counted != head["changes"]:
            book.fault(f"gap: {head['changes']} were to come, and {counted} came")


def _ensure_next(book: Book, before: dict[str, Any], head: Any) -> None:
    if head["since"] != before["cursor"]:
        book.fault(f"gap: since {head['since']} after {before['cursor']}")
    for topic, parts in before["offsets"].items():
        for partition, offset in parts.items():
            if head["offsets"].get(topic, {}).get(partition, 0) < offset:
                book.fault(f"backward: {topic} {partition} {head['offsets']} after {offset}")


def take(book: Book, events: Iterator[_Event]) -> None:
    """Applies each change set once its commit has arrived."""
    head, rows = None, list[Any]()
    for event, data in events:
        match event:
            case "begin":
                head, rows = data, []
            case "rows":
                rows += data
            case "commit":
                apply(book, head, rows, data)
                head = None


def by_command(project: Path, table: str, since: str | None) -> Iterator[_Event]:
    """Yields the change sets that `kappa changes` prints."""
    command = [sys.executable, "-P", "-m", "cli", "changes", table, "-f", "-o", "jsonl"]
    with subprocess.Popen(
        [*command, *(() if since is None else ("--from", since))],
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdout is not None
        for line in reading.stdout:
            if not line.endswith("\n"):
                return
            found = json.loads(line)
            if "begin" in found:
                yield "begin", found["begin"]
            elif "commit" in found:
                yield "commit", found["commit"]
            else:
                yield "rows", [found]


def by_events(project: Path, table: str, since: str | None) -> Iterator[_Event]:
    """Yields server-sent events; continues with Last-Event-ID, as a browser does."""
    url = served_at(open_store(load_settings(project)))
    if url is None:
        return
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_SILENT_SECONDS)
    with closing(connection):
        connection.request(
            "GET",
            f"/api/v1/tables/{table}/changes",
            headers={} if since is None else {"Last-Event-ID": since},
        )
        response = connection.getresponse()
        if response.status != 200:
            print(response.status, response.read().decode(), flush=True)
            return
        fields: dict[str, str] = {}
        while line := response.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                data = json.loads(fields["data"])
                if fields["event"] == "error":
                    print(data, flush=True)
                elif fields["event"] == "commit":
                    yield "commit", fields["id"]
                else:
                    yield fields["event"], data
                fields = {}


def read_topic(book: Book, project: Path, topic: str) -> None:
    """Applies a sink's records, as a read-committed consumer of its only partition gets them.

    Records with the same cursor are one change set. A change set is complete if a record with
    another cursor follows, or if the partition ends. So if the consumer has seen a change set at
    the end of the partition, no more records of that change set may follow.
    """
    found = running(load_settings(project))
    if found is None:
        return
    options = {
        "bootstrap.servers": found.bootstrap_servers,
        "group.id": "consuming",
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
        "log_level": "0",
    }
    ended, held = book.place.get("cursor"), list[tuple[str, str | None]]()
    with closing(Consumer(options)) as consumer:
        start = book.place.get("next", 0)
        consumer.assign([TopicPartition(topic, 0, start)])
        cursor, offset = None, start
        while True:
            message = consumer.poll(1.0)
            error = None if message is None else message.error()
            if message is None or error is not None:
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    if held:
                        _apply_records(book, cursor, held, offset)
                        ended, cursor, held = cursor, None, []
                elif (
                    error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                ) or running(load_settings(project)) != found:
                    return
                continue
            (this,) = [value.decode() for name, value in message.headers() if name == _CURSOR]
            if this == ended:
                book.fault(f"half: more records of {this} after the end of the partition")
            if held and this != cursor:
                _apply_records(book, cursor, held, offset)
                ended, held = cursor, []
            value = message.value()
            held.append((message.key().decode(), None if value is None else value.decode()))
            cursor, offset = this, message.offset() + 1


_CURSOR = "kappa-cursor"


def _apply_records(
    book: Book, cursor: str | None, records: list[tuple[str, str | None]], after: int
) -> None:
    assert cursor is not None
    with book.change_set("sent", cursor, {"cursor": cursor, "next": after}):
        for key, value in records:
            held = book.row(key)
            text = None if value is None else row_text(json.loads(value))
            if text == held:
                book.fault(f"duplicate: {key} is {text} already")
                continue
            if held is not None:
                book.take_away(key, None)
            if text is not None:
                book.add(key, text)


def main() -> None:
    """Runs the program until it is killed."""
    way, name, path, folder = sys.argv[1:]
    project = Path(folder)
    # Of a killed one nothing but the book is left: so an error begins anew from there, too.
    while True:
        book = Book(Path(path))
        try:
            if way == "topic":
                read_topic(book, project, name)
            else:
                read = by_command if way == "command" else by_events
                take(book, read(project, name, book.place.get("cursor")))
        except (OSError, HTTPException, KafkaException) as error:
            print(repr(error), flush=True)
        book.close()
        time.sleep(_AGAIN_SECONDS)


if __name__ == "__main__":
    main()
