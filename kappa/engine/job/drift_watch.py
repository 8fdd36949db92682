"""The search for drift in samples of small slices, and in the counts of all slices.

For each topic, at most 20 records per minute are searched for fields that the topic does not
declare. These records are the first records of small slices. Nested fields are not searched.
Rejects are found by decoding: the first reject of each reason is stored as an example. Once a
minute, the share of rejects among the records of the last minute is compared with the share among
all earlier records. For large slices, which Spark decodes, only the counts are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from kappa.base.clock import now
from kappa.base.errors import KappaError
from kappa.declare.formats.format import SourceChangeReader
from kappa.declare.topic import Topic
from kappa.declare.values.reason import Rejected
from kappa.declare.values.tally import Tally
from kappa.engine.slice_rows import CountsOf, RejectExample
from kappa.state.drift import MOST_DRIFTS, Drift, DriftKind, put_drifts, read_drifts
from kappa.state.store import Store

_EVERY_SECONDS = 60.0
_SAMPLED_RECORDS = 20
# Characters of a value that is shown as a proof.
_SHOWN_CHARACTERS = 200
# A larger record takes too long for a look.
_MOST_BYTES = 64 << 10
# A share jumps if it is so large, so many times the share before, and of so many records.
_LEAST_SHARE, _TIMES, _LEAST_REJECTS, _LEAST_BEFORE = 0.01, 5.0, 10, 100


@dataclass
class _Window:
    """The counts of a topic's records since the time `began`.

    `before` is a pair: the number of records read before that time, and the number rejected.
    """

    began: float
    before: tuple[int, int]
    read: int = 0
    rejected: int = 0
    example: RejectExample | None = None


@dataclass(frozen=True, slots=True)
class _Reader:
    """The function that reads an event's fields, and the field names that the topic declares.

    If the declaration gives earlier names of a column, these are also declared names.
    """

    fields: Callable[[bytes], Mapping[str, object]]
    declared: frozenset[str]


@dataclass
class _Sampling:
    """The limit on the samples of a topic: at the time `at`, `room` records may be sampled.

    `room` grows by 20 per minute, and is never more than 20.
    """

    at: float
    room: float = _SAMPLED_RECORDS

    def room_at(self, now: float) -> int:
        """Updates the limit to the time `now`. Returns how many records may be sampled."""
        grown = (now - self.at) * _SAMPLED_RECORDS / _EVERY_SECONDS
        self.at, self.room = now, min(_SAMPLED_RECORDS, self.room + grown)
        return int(self.room)


class DriftWatch:
    """The search for drift in the slices that a build's job folds."""

    def __init__(
        self,
        store: Store,
        build: str,
        topics: Iterable[Topic],
        *,
        serving: Iterable[Drift] = (),
        only_known: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the drift that earlier jobs of the build have found.

        `serving` is the drift of the build that serves the pipeline. If this build has the same
        drift, the existing record is stored, so the drift is not reported as new. If `only_known`
        is True, no other drift is reported: a candidate that replays reads old records, and the
        verification compares the rejects of the two builds.
        """
        self._store = store
        self._build = build
        self._clock = clock
        self._serving = {each.key: each for each in serving}
        self._only_known = only_known
        self._known = {each.key for each in read_drifts(store, build)}
        self._readers: dict[str, _Reader] = {}
        self._samplings: dict[str, _Sampling] = {}
        self._windows: dict[str, _Window] = {}
        for topic in topics:
            reader = topic.format.event_reader(topic.columns)
            # A change at a source has fields of the source itself, too.
            if not isinstance(reader, SourceChangeReader):
                names = {name for each in topic.columns for name in (each.name, *each.was)}
                self._readers[topic.name] = _Reader(reader.fields, frozenset(names))
        # A field that is not declared stays so, whether or not a sample has it again.
        self._add(each for each in self._serving.values() if self._is_undeclared(each))

    def sample(self, topic: str, raw: pa.Table) -> None:
        """Searches the first of the raw records `raw` of a topic for undeclared fields.

        At most 20 records per minute and topic are searched.
        """
        at, reader = self._clock(), self._readers.get(topic)
        sampling = self._samplings.setdefault(topic, _Sampling(at))
        count = min(sampling.room_at(at), raw.num_rows)
        if reader is None or not count or len(self._known) >= MOST_DRIFTS:
            return
        sampling.room -= count
        first = raw.slice(0, count).select(["partition", "offset", "value"])
        found = list[Drift]()
        for each in first.to_pylist():
            value = each["value"]
            if value is None or len(value) > _MOST_BYTES:
                continue
            # A record that is no event is a reject, with its reason.
            with suppress(Rejected):
                for name in sorted(reader.fields(value).keys() - reader.declared):
                    text = f"topic {topic} has a field {name} that is not declared"
                    place = f"{topic}:{each['partition']}:{each['offset']}"
                    found.append(_drift(DriftKind.FIELD, topic, name, text, place, value))
        self._add(found)

    def see_slice(
        self,
        counts: CountsOf,
        examples: Callable[[], Iterable[RejectExample]],
        before: Mapping[str, Mapping[int, Tally]],
    ) -> None:
        """Searches the counts and rejects of a folded slice for drift, and records new drift.

        `examples` returns a reject for each combination of topic, reason and field, or no rejects
        if the decoded records are not in this process. `examples` is called only if the slice has
        rejects. `before` contains the counts of the records of all earlier slices.
        """
        at, found = self._clock(), list[Drift]()
        rejected = any(each.rejected for parts in counts.values() for each in parts.values())
        shown = tuple(examples()) if rejected else ()
        for example in shown:
            of = f"{example.reason} {example.field}".strip()
            text = f"topic {example.topic} has records that are rejected: {example.detail}"
            found.append(
                _drift(DriftKind.REASON, example.topic, of, text, example.place, example.value)
            )
        for topic, parts in counts.items():
            tallies = before.get(topic, {}).values()
            window = self._windows.get(topic)
            if window is None:
                so_far = sum(each.decoded for each in tallies), sum(e.rejected for e in tallies)
                window = self._windows[topic] = _Window(at, (sum(so_far), so_far[1]))
            window.read += sum(each.decoded + each.rejected for each in parts.values())
            window.rejected += sum(each.rejected for each in parts.values())
            own = (each for each in shown if each.topic == topic)
            window.example = window.example or next(own, None)
            if at - window.began >= _EVERY_SECONDS:
                del self._windows[topic]
                if _jumps(window):
                    found.append(_share_drift(topic, window))
        self._add(found)

    def _is_undeclared(self, drift: Drift) -> bool:
        reader = self._readers.get(drift.topic)
        is_field = drift.kind is DriftKind.FIELD
        return is_field and reader is not None and drift.name not in reader.declared

    def _add(self, found: Iterable[Drift]) -> None:
        new = {
            each.key: self._serving.get(each.key, each)
            for each in reversed(list(found))
            if each.key not in self._known and (not self._only_known or each.key in self._serving)
        }
        if not new or len(self._known) >= MOST_DRIFTS:
            return
        self._known |= new.keys()
        # Drift is for people: a disk that is full stops no slice.
        with suppress(KappaError, OSError):
            # Read again: a redrive takes drift out.
            there = read_drifts(self._store, self._build)
            put_drifts(self._store, self._build, (*there, *reversed(new.values())))


def _jumps(window: _Window) -> bool:
    """Returns True if the share of rejects in a window is far above the share before the window.

    This means that the share is at least 1 % and at least five times the share before, with at
    least 10 rejects in the window and 100 records before.
    """
    read, rejected = window.before
    if read < _LEAST_BEFORE or window.rejected < _LEAST_REJECTS:
        return False
    share = window.rejected / window.read
    return share >= _LEAST_SHARE and share >= _TIMES * rejected / read


def _share_drift(topic: str, window: _Window) -> Drift:
    read, rejected = window.before
    share, usual = 100 * window.rejected / window.read, 100 * rejected / read
    text = f"{share:.3g} % of the records of topic {topic} are rejected, {usual:.3g} % were before"
    example = window.example
    place, value = ("", None) if example is None else (example.place, example.value)
    return _drift(DriftKind.SHARE, topic, "", text, place, value)


def _drift(
    kind: DriftKind, topic: str, name: str, text: str, place: str, value: bytes | None
) -> Drift:
    shown = (value or b"")[: 4 * _SHOWN_CHARACTERS].decode(errors="backslashreplace")
    # A surrogate is no character that a file may have.
    texts = (each.encode(errors="backslashreplace").decode() for each in (name, text))
    name, text = (each[:_SHOWN_CHARACTERS] for each in texts)
    return Drift(kind, topic, name, text, place, shown[:_SHOWN_CHARACTERS], now())
