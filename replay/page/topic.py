"""A topic's records as values, by partition, and how fast the log grows.

The records are the newest, or start at an offset or a time, or have a key. If a serving build has
rejected a record, the record has the reason.

Only records of topics that a build reads are shown: other topics of the cluster may be private.
"""

from __future__ import annotations

import codecs
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from kappa.base.clock import moment_text
from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import text
from kappa.kafka.reader import Record
from kappa.replay.status.shared_looks import SharedLooks
from kappa.replay.status.topics.topic_growth import TopicRates, end_sums
from kappa.serving.http.problem import HttpError
from kappa.serving.query.pin.moments import parse_time
from kappa.serving.query.query import read_snapshot
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_NEWEST = 8
# Of so many partitions records are shown, and of each so many bytes: more fit no page.
_PARTITIONS = 16
_MOST_BYTES = 500
# A longer value of JSON is shown by its beginning alone.
_PRETTY_BYTES = 20_000
# A search shows so many records, looks at so many, and ends after so many seconds.
_FOUND = 50
_LOOKED_AT = 100_000
_SEARCH_SECONDS = 5.0
_LARGEST_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record for people; bytes that are not text are hexadecimal digits, and null is None.

    `rejected` is the reason why a build that serves has rejected the record, or "". `pretty` is a
    value of JSON with a field a line, or "".
    """

    offset: int
    at: str
    key: str | None
    value: str | None
    rejected: str = ""
    pretty: str = ""


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """The records that a person asks for.

    `start` is an offset or a time in ISO 8601, `key` a text in the key; "" for any.
    """

    partition: int | None = None
    start: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: the begin and end in the log, and the records that are shown.

    The newest records come newest first, and records from a place on in the order of the log.
    """

    number: int
    begin: int
    end: int
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with its partitions; from partition `shown` on no records are shown.

    `looked_at` counts the records in which a key was searched; `ended` is True if the search ended
    before the last of them.
    """

    name: str
    partitions: tuple[Partition, ...]
    shown: int = _PARTITIONS
    search: RecordSearch = field(default_factory=RecordSearch)
    looked_at: int = 0
    ended: bool = False


def topic_rates(desk: SharedLooks, paces: TopicRates) -> Mapping[str, float | None]:
    """Returns how fast topics grow. Raises Unreachable if the broker does not answer."""
    log = desk.must_reach_broker()
    return desk.shared_look(
        "rates of topics",
        lambda: paces.update_rates(end_sums(log.topics(), log), time.monotonic()),
    )


def topic_view(desk: SharedLooks, name: str, search: RecordSearch | None = None) -> TopicView:
    """Returns the newest records of a topic, or the records that a search finds.

    Raises HttpError if no build reads the topic or the broker has no topic of that name, UsageError
    for a search that cannot be read, and Unreachable if the broker does not answer.
    """
    wanted = search or RecordSearch()
    log = desk.must_reach_broker()
    if not any(name in build.topics for build in desk.status().builds):
        raise HttpError(
            404,
            f"no build reads a topic {name[:80]}, so its records are not shown here",
            hint="kappa topics list tells which topics there are",
        )
    if name not in log.topics():
        raise HttpError(
            404,
            f"the broker has no topic {name[:80]}",
            hint="kappa topics create makes those that are declared",
        )
    return desk.shared_look(
        f"records of {name}, {wanted}", lambda: _found_records(desk, log, name, wanted)
    )


def _found_records(desk: SharedLooks, log: Log, name: str, wanted: RecordSearch) -> TopicView:
    begin, end = log.beginning([name]), log.end([name])
    parts = [number for _, number, _ in end.items()]
    if wanted.partition is not None and wanted.partition not in parts:
        raise UsageError(
            f"topic {name} has no partition {wanted.partition}",
            hint=f"it has 0 to {len(parts) - 1}",
        )
    shown = [
        number
        for number in parts
        if (number < _PARTITIONS if wanted.partition is None else number == wanted.partition)
    ]
    newest = _FOUND if wanted.partition is not None else _NEWEST
    if wanted.start or wanted.key:
        newest = max(_NEWEST, _FOUND // max(1, len(shown)))
    room = _LOOKED_AT // max(1, len(shown)) if wanted.key else newest
    since = _search_start(log, name, begin, wanted.start) if wanted.start else None
    start, until = {}, {}
    for number in shown:
        first, last = begin.at(name, number), end.at(name, number)
        start[number] = max(first, last - room) if since is None else since.at(name, number)
        until[number] = last if since is None else min(last, start[number] + room)
    found: dict[int, deque[LogRecord]] = {number: deque(maxlen=newest) for number in shown}
    looked_at, ended, deadline = 0, False, time.monotonic() + _SEARCH_SECONDS
    for record in log.records([name], Offsets({name: start}), Offsets({name: until})):
        looked_at += 1
        seen, kept = _log_record(record), found[record.partition]
        # From a place on the first records are shown, else the last.
        is_full = since is not None and len(kept) == newest
        if wanted.key in (seen.key or "") and not is_full:
            kept.append(seen)
        if time.monotonic() > deadline:
            ended = True
            break
    rejected = _rejected_places(desk, name, found)
    partitions = []
    for number in parts:
        records = [
            replace(each, rejected=rejected.get((number, each.offset), ""))
            for each in found.get(number, ())
        ]
        partitions.append(
            Partition(
                number,
                begin.at(name, number),
                end.at(name, number),
                tuple(records if since is not None else reversed(records)),
            )
        )
    return TopicView(
        name,
        tuple(partitions),
        search=wanted,
        looked_at=looked_at if wanted.key else 0,
        ended=ended,
    )


def _search_start(log: Log, name: str, begin: Offsets, start: str) -> Offsets:
    """Returns the offsets of a place in the log: an offset of each partition, or a time."""
    # Python reads no number of thousands of digits.
    if start.strip().isdecimal() and len(start) < 100:
        first = min(int(start), _LARGEST_OFFSET)
        return Offsets({name: dict.fromkeys(begin.next[name], first)}).highest_with(begin)
    at, _ = parse_time(start)
    return log.at_time([name], int(at.timestamp() * 1000)).highest_with(begin)


def _rejected_places(
    desk: SharedLooks, name: str, found: Mapping[int, Collection[LogRecord]]
) -> Mapping[tuple[int, int], str]:
    """Returns why builds that serve have rejected some of these records, by place."""
    ranges = [
        f'("partition" = {number} and "offset" between {min(offsets)} and {max(offsets)})'
        for number, records in found.items()
        if (offsets := [each.offset for each in records])
    ]
    if not ranges or not desk.generation():
        return {}
    try:
        rows = read_snapshot(
            desk.here.store,
            lambda reader: reader.rows(
                'select "partition", "offset", reason, detail from rejects '
                f"where topic = {text(name)} and ({' or '.join(ranges)})"
            ),
            lease_seconds=desk.here.lease_seconds,
        ).rows
    except KappaError:
        # The records are shown without marks, and the page of the rejects tells the reason.
        return {}
    return {
        (int(number), int(offset)): f"{reason}: {detail}" if detail else str(reason)
        for number, offset, reason, detail in rows
    }


def _log_record(record: Record) -> LogRecord:
    return LogRecord(
        record.offset,
        moment_text(record.timestamp_ms),
        as_text(record.key),
        as_text(record.value),
        pretty=pretty_json(record.value),
    )


def pretty_json(content: bytes | None) -> str:
    """Returns a JSON object or array with a field a line, and each number as it is written.

    Returns "" for all other values, and for values that are too long for a page.
    """
    if content is None or len(content) > _PRETTY_BYTES or content.lstrip()[:1] not in {b"{", b"["}:
        return ""
    try:
        return msgspec.json.format(content, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def as_text(content: bytes | None) -> str | None:
    """Returns the first of these bytes for people: text if they are UTF-8, else hexadecimal."""
    if content is None:
        return None
    head = content[:_MOST_BYTES]
    try:
        # The cut may be within a character.
        shown = codecs.getincrementaldecoder("utf-8")().decode(
            head, final=len(content) <= _MOST_BYTES
        )
    except UnicodeDecodeError:
        shown = f"hex {head.hex(' ')}"
    return shown if len(content) <= _MOST_BYTES else f"{shown}…"
