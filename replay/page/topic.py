"""Computes the data of a topic's page: records of the topic, and the growth rates of topics.

The records of all partitions are in one list, ordered by time: the newest records, or the records
from a given place. A search for a text in keys or values reads a limited number of records, and
reports this number. If a serving build has rejected a record, the record is shown with the reason.

Only records of topics that a build reads are shown, because other topics of the cluster may be
private.
"""

from __future__ import annotations

import codecs
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kappa.base.clock import moment_text
from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import text
from kappa.kafka.reader import Record
from kappa.replay.status.status_cache import SharedLooks
from kappa.replay.status.topics.topic_growth import TopicRates, end_sums
from kappa.serving.http.page.formatting import is_cut
from kappa.serving.http.problem import HttpError
from kappa.serving.query.pin.moments import parse_time
from kappa.serving.query.query import read_snapshot
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log
    from kappa.replay.status.status import Status

# A page has so many records, and never so few of a partition that nobody sees their order.
_FOUND = 50
_LEAST_CHUNK = 8
# Of so many partitions records are shown, and of each value so many bytes: more fit no page.
_PARTITIONS = 16
_MOST_BYTES = 500
_MOST_HEADERS = 20
# A longer value of JSON is shown by its beginning alone.
_PRETTY_BYTES = 20_000
# A search looks at so many records, in chunks that grow so fast, and ends after so many seconds.
_LOOKED_AT = 100_000
_GROWTH = 10
_SEARCH_SECONDS = 5.0
_LARGEST_OFFSET = (1 << 63) - 1
# A place in each of some partitions, as the links to other records have it.
_PLACES = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record for display.

    Bytes that are not text are shown as hexadecimal digits, and None represents null. `rejected` is
    the reason why a serving build has rejected the record, or "". If the value is JSON, `pretty` is
    the value with one field per line; otherwise `pretty` is "".
    """

    partition: int
    offset: int
    timestamp_ms: int
    at: str
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] = ()
    rejected: str = ""
    pretty: str = ""


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """A search for records of a topic, as a person enters it.

    With `start`, the log is read forwards from this place; with `before`, backwards. A place is an
    offset, a time in ISO 8601, or offsets by partition such as `0:120,1:80`. `key` and `value` are
    texts that the record's key and value must contain. An empty field does not restrict the search.
    `order` is "newest" or "oldest" for the record that is shown first, or "" for the order of
    reading.
    """

    partition: int | None = None
    start: str = ""
    before: str = ""
    key: str = ""
    value: str = ""
    order: str = ""

    @property
    def is_forward(self) -> bool:
        """Returns True if the log is read forwards."""
        return bool(self.start) or (not self.before and self.order == "oldest")

    @property
    def has_oldest_first(self) -> bool:
        """Returns True if the oldest record is shown first."""
        return self.order == "oldest" if self.order in {"oldest", "newest"} else self.is_forward


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, with the first offset and the end of its log."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with its partitions, and the records that the page shows.

    Only records of the first `shown` partitions are shown. `looked_at` is the number of records
    that were searched for a text. `ended` is True if a limit ended the search before all records
    were searched. `older` is the place from which older records can be read, and `newer` is the
    place from which newer records can be read. Each of them is "" if there are no such records.
    """

    name: str
    partitions: tuple[Partition, ...]
    records: tuple[LogRecord, ...] = ()
    shown: int = _PARTITIONS
    search: RecordSearch = field(default_factory=RecordSearch)
    looked_at: int = 0
    ended: bool = False
    older: str = ""
    newer: str = ""


def topic_rates(desk: SharedLooks, paces: TopicRates) -> Mapping[str, float | None]:
    """Returns the growth of each topic of the broker, in offsets per second, by topic name.

    The growth is computed from repeated calls with the same `paces`, and is None for a topic at the
    first call. Raises Unreachable if the broker does not answer.
    """
    log = desk.must_reach_broker()
    return desk.shared_look(
        "rates of topics",
        lambda: paces.update_rates(end_sums(log.topics(), log), time.monotonic()),
    )


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """The builds that read a topic.

    `roles` maps a pipeline to the roles of its builds, the live build first. `lags` has the lag of
    each serving build, by pipeline, and is empty if the end of the topic is unknown. `folded_at` is
    the time of the newest record that a serving build has folded, or None if unknown.
    """

    roles: Mapping[str, tuple[str, ...]]
    lags: Mapping[str, int]
    folded_at: datetime | None


def topic_usage(name: str, status: Status) -> TopicUsage:
    """Returns the builds that read a topic, and their lag, according to the `status`. Pure."""
    builds = [each for each in status.builds if name in each.topics]
    live = [each for each in builds if each.role == "live"]
    roles: dict[str, list[str]] = {}
    for each in sorted(builds, key=lambda each: (each.pipeline, each.role != "live", each.role)):
        roles.setdefault(each.pipeline, []).append(each.role)
    ends = () if status.end is None else tuple(status.end.only({name}).items())
    lags = {
        each.pipeline: sum(max(0, end - each.offsets.at(name, part)) for _, part, end in ends)
        for each in (live if ends else ())
    }
    return TopicUsage(
        {pipeline: tuple(each) for pipeline, each in roles.items()},
        lags,
        max((each.record_times[name] for each in live if name in each.record_times), default=None),
    )


def topic_view(desk: SharedLooks, name: str, search: RecordSearch | None = None) -> TopicView:
    """Returns the newest records of a topic, or the records that match a search.

    Raises HttpError if no build reads the topic, or if the broker has no topic of that name. Raises
    UsageError if the search cannot be parsed, and Unreachable if the broker does not answer.
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
    asked = wanted.start or wanted.before
    places = _places(log, name, begin, asked) if asked else begin if wanted.is_forward else end
    readers = [
        _PartitionReader(
            number,
            first := begin.at(name, number),
            last := end.at(name, number),
            min(max(places.at(name, number), first), last),
        )
        for number in shown
    ]
    ended = _read_partitions(log, name, readers, wanted)
    records = _merged_records(readers, wanted, is_whole=True)[:_FOUND]
    taken = {
        number: [each.offset for each in records if each.partition == number] for number in shown
    }
    reached = {
        each.number: each.reached_after(taken[each.number], forward=wanted.is_forward)
        for each in readers
    }
    began = {each.number: each.start for each in readers}
    older, newer = (began, reached) if wanted.is_forward else (reached, began)
    if wanted.is_forward != wanted.has_oldest_first:
        records.reverse()
    rejected = _rejected_places(desk, name, taken)
    is_search = bool(wanted.key or wanted.value)
    return TopicView(
        name,
        tuple(Partition(number, begin.at(name, number), end.at(name, number)) for number in parts),
        tuple(
            replace(each, rejected=rejected.get((each.partition, each.offset), ""))
            for each in records
        ),
        search=wanted,
        looked_at=sum(each.looked_at for each in readers) if is_search else 0,
        ended=ended,
        older=_places_text(older)
        if any(older[each.number] > each.begin for each in readers)
        else "",
        newer=_places_text(newer) if any(newer[each.number] < each.end for each in readers) else "",
    )


class _PartitionReader:
    """Reads one partition, and collects the found records in the order of reading.

    The partition was read from `start` to `at`, forwards or backwards.
    """

    def __init__(self, number: int, begin: int, end: int, start: int) -> None:
        self.number, self.begin, self.end, self.start, self.at = number, begin, end, start, start
        self.found: list[LogRecord] = []
        self.looked_at = 0

    def is_done(self, *, forward: bool) -> bool:
        """Returns True if all records of the partition have been read in the given direction."""
        return self.at >= self.end if forward else self.at <= self.begin

    def reached_after(self, offsets: list[int], *, forward: bool) -> int:
        """Returns the offset at which reading continues for the next page.

        `offsets` are the offsets of the found records that the present page shows.
        """
        if len(offsets) == len(self.found):
            return self.at
        if not offsets:
            return self.start
        return offsets[-1] + 1 if forward else offsets[-1]

    def add(self, found: Sequence[LogRecord], at: int, *, forward: bool) -> None:
        """Adds the records that were found up to the offset `at`, in the order of reading.

        If `found` contains as many records as fit on a page, further records may exist before `at`.
        In this case, reading continues right after the last found record.
        """
        self.found += found
        is_full = len(found) >= _FOUND
        self.at = at if not is_full else found[-1].offset + 1 if forward else found[-1].offset


def _read_partitions(
    log: Log, name: str, readers: list[_PartitionReader], wanted: RecordSearch
) -> bool:
    """Reads until all records of a page are found.

    Returns True if a limit ended the reading earlier.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    forward = wanted.is_forward
    chunk = max(_LEAST_CHUNK, -(-_FOUND // max(1, len(readers))))
    most = max(chunk, _LOOKED_AT // max(1, len(readers)))
    while True:
        merged = _merged_records(readers, wanted)
        listed = {(each.partition, each.offset) for each in merged}
        waiting = [
            each
            for each in readers
            if not each.is_done(forward=forward)
            and abs(each.at - each.start) < most
            and all((each.number, record.offset) in listed for record in each.found)
        ]
        if len(merged) >= _FOUND or not waiting:
            break
        if not _read_chunk(log, name, waiting, wanted, chunk, deadline):
            return True
        chunk = min(chunk * _GROWTH, most)
    return len(merged) < _FOUND and not all(each.is_done(forward=forward) for each in readers)


def _read_chunk(
    log: Log,
    name: str,
    readers: list[_PartitionReader],
    wanted: RecordSearch,
    chunk: int,
    deadline: float,
) -> bool:
    """Reads the next `chunk` offsets of each partition. Returns False if the `deadline` passed."""
    forward, by_number = wanted.is_forward, {each.number: each for each in readers}
    ranges = {
        each.number: (each.at, min(each.end, each.at + chunk))
        if forward
        else (max(each.begin, each.at - chunk), each.at)
        for each in readers
    }
    found: dict[int, deque[LogRecord]] = {number: deque(maxlen=_FOUND) for number in by_number}
    seen_to = {number: each[0] for number, each in ranges.items()}
    start = Offsets({name: {number: each[0] for number, each in ranges.items()}})
    until = Offsets({name: {number: each[1] for number, each in ranges.items()}})
    for record in log.records([name], start, until):
        kept = found[record.partition]
        by_number[record.partition].looked_at += 1
        seen_to[record.partition] = record.offset + 1
        if (not forward or len(kept) < _FOUND) and _has_texts(record, wanted):
            kept.append(_log_record(record))
        if time.monotonic() > deadline:
            # Backwards, a range that was not read to its end has a hole before what is known.
            for number, reader in by_number.items() if forward else ():
                reader.add(found[number], seen_to[number], forward=True)
            return False
    for number, reader in by_number.items():
        in_order = list(found[number]) if forward else list(reversed(found[number]))
        reader.add(in_order, ranges[number][1 if forward else 0], forward=forward)
    return True


def _merged_records(
    readers: Iterable[_PartitionReader], wanted: RecordSearch, *, is_whole: bool = False
) -> list[LogRecord]:
    """Merges the found records of all partitions by time, in the order of reading.

    The list ends before the first record that may be preceded by a record that was not read yet.
    With `is_whole`, all found records are merged. The list contains at most as many records as fit
    on a page.
    """
    forward = wanted.is_forward
    left = {each.number: deque(each.found) for each in readers}
    is_open = {each.number: not each.is_done(forward=forward) for each in readers}
    merged: list[LogRecord] = []
    while len(merged) < _FOUND:
        if not is_whole and any(is_open[number] and not each for number, each in left.items()):
            break
        heads = [each[0] for each in left.values() if each]
        if not heads:
            break
        nearest = (min if forward else max)(
            heads, key=lambda each: (each.timestamp_ms, each.offset, each.partition)
        )
        merged.append(left[nearest.partition].popleft())
    return merged


def _has_texts(record: Record, wanted: RecordSearch) -> bool:
    """Returns True if the key and the value of a record contain the texts of the search.

    If the bytes are not text, they match if their displayed hexadecimal digits contain the text.
    """
    return all(
        not needle
        or needle.encode(errors="surrogatepass") in (content or b"")
        or needle in (as_text(content) or "")
        for needle, content in ((wanted.key, record.key), (wanted.value, record.value))
    )


def _places(log: Log, name: str, begin: Offsets, asked: str) -> Offsets:
    """Converts a place that a person has entered to offsets by partition.

    `asked` is one offset for all partitions, offsets by partition such as `0:120,1:80`, or a time.
    """
    # Python reads no number of thousands of digits.
    if asked.strip().isdecimal() and len(asked) < 100:
        first = min(int(asked), _LARGEST_OFFSET)
        return Offsets({name: dict.fromkeys(begin.next[name], first)})
    if _PLACES.fullmatch(asked):
        pairs = (each.split(":") for each in asked.split(","))
        return Offsets({name: {int(number): int(offset) for number, offset in pairs}})
    at, _ = parse_time(asked)
    return log.at_time([name], int(at.timestamp() * 1000))


def _places_text(places: Mapping[int, int]) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in places.items())


def _rejected_places(
    desk: SharedLooks, name: str, found: Mapping[int, Iterable[int]]
) -> Mapping[tuple[int, int], str]:
    """Returns the reasons for which serving builds have rejected some of the found records.

    `found` maps a partition to the offsets of the records. The result maps (partition, offset) to
    the reason.
    """
    ranges = [
        f'("partition" = {number} and "offset" in ({", ".join(map(str, offsets))}))'
        for number, offsets in found.items()
        if offsets
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
        record.partition,
        record.offset,
        record.timestamp_ms,
        moment_text(record.timestamp_ms),
        as_text(record.key),
        as_text(record.value),
        tuple((name[:_MOST_BYTES], as_text(each)) for name, each in record.headers[:_MOST_HEADERS]),
        pretty=pretty_json(record.value),
    )


def pretty_json(content: bytes | None) -> str:
    """Formats a JSON object or array with one field per line. Numbers are copied unchanged.

    Returns "" for any other value, and for a value that is too long for a page.
    """
    if content is None or len(content) > _PRETTY_BYTES or content.lstrip()[:1] not in {b"{", b"["}:
        return ""
    try:
        return msgspec.json.format(content, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def as_text(content: bytes | None) -> str | None:
    """Returns at most the first 500 bytes as text for display, or None if `content` is None.

    Bytes that are not UTF-8 are shown as hexadecimal digits.
    """
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


def cut_length(content: bytes | None) -> int | None:
    """Returns the length in bytes of a key or a value that a page cuts, otherwise None."""
    if content is None:
        return None
    is_long = len(content) > _MOST_BYTES or is_cut(as_text(content))
    return len(content) if is_long else None
