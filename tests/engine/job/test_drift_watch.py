"""Drift is found in samples and counts of slices, reported once with a proof, and stops nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kappa import Json, Topic
from kappa.declare.values.tally import Tally
from kappa.engine.job.drift_watch import DriftWatch
from kappa.engine.slice_in_process import SliceHere
from kappa.records.decode.decode import decode_table
from kappa.records.decode.raw_records import raw_table
from kappa.state.drift import MOST_DRIFTS, Drift, put_drifts, read_drifts
from kappa.state.store import Store

VISITS = Topic(
    "visits", event="page string not null, hits int, new_name string", was={"new_name": "name"}
)
HISTORY = {"visits": {0: Tally(decoded=999, rejected=1)}}


class Watched:
    """The slices of a job with one topic, and the drift that is found in them."""

    def __init__(self, folder: Path, topic: Topic = VISITS) -> None:
        self.store = Store(folder)
        self.topic = topic
        self.now = 1000.0
        self.offset = 0
        self.restart()

    def restart(self, **given: Any) -> None:
        self.watch = DriftWatch(self.store, "web-1", [self.topic], clock=lambda: self.now, **given)

    def fold(
        self, *events: object, before: Mapping[str, Mapping[int, Tally]] = HISTORY
    ) -> SliceHere:
        """Folds a slice of events; bytes are sent unchanged, other values as JSON."""
        values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
        raw = raw_table(
            ("visits", 0, self.offset + place, 0, None, value, ())
            for place, value in enumerate(values)
        )
        self.offset += len(values)
        self.watch.sample("visits", raw)
        records = SliceHere({"visits": decode_table(raw, self.topic, {}, {})})
        self.watch.see_slice(records.counts(), records.reject_examples, before)
        return records

    def found(self) -> tuple[Drift, ...]:
        return read_drifts(self.store, "web-1")


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_events_as_declared_are_no_drift(watched: Watched) -> None:
    for _ in range(3):
        watched.fold({"page": "/", "hits": 1}, {"page": "/", "name": "an earlier name"})
        watched.now += 61

    assert watched.found() == ()
    assert not watched.store.names("builds")


def test_an_undeclared_field_is_told_once(watched: Watched) -> None:
    """The field is reported with its first record, and only once, also across job restarts."""
    for _ in range(2):
        watched.fold({"page": "/"}, {"page": "/a", "user": 7}, {"page": "/b", "user": 8})
        watched.now += 61
        watched.restart()
    watched.fold({"page": "/", "user": 9, "more": 1})

    user, more = watched.found()
    assert (user.kind, user.topic, user.name) == ("undeclared_field", "visits", "user")
    assert (user.proof, user.value) == ("visits:0:1", '{"page": "/a", "user": 7}')
    assert user.text == "topic visits has a field user that is not declared"
    assert (more.name, more.proof) == ("more", "visits:0:6")


def test_an_undeclared_field_outlasts_a_promote(watched: Watched, tmp_path: Path) -> None:
    """The next build keeps the drift with time and first record, until the topic declares it."""
    watched.fold({"page": "/", "user": 7}, {"page": "/", "more": 1}, {"page": 7})
    before = watched.found()
    assert len(before) == 3

    candidate = Watched(
        tmp_path / "next", Topic("visits", event="page string not null, hits int, more int")
    )
    candidate.restart(serving=before, only_known=True)
    assert candidate.found() == before[:1]
    candidate.fold({"page": 7}, {"page": "/", "other": 1}, {"page": "/", "hits": "x"})
    assert candidate.found() == (before[0], before[2])

    candidate.restart(serving=before)
    candidate.fold({"page": "/", "new": 1})
    assert [each.name for each in candidate.found()] == ["user", "wrong_type page", "new"]


def test_drift_that_was_settled_stays_settled(watched: Watched) -> None:
    watched.fold({"page": 7})
    put_drifts(watched.store, "web-1", ())
    watched.fold({"page": "/", "user": 7})

    assert [each.name for each in watched.found()] == ["user"]


def test_a_topic_is_sampled_twenty_times_a_minute(watched: Watched) -> None:
    """Every record of a slow topic is looked at, and few records of a busy one."""
    watched.fold(*[{"page": "/"}] * 19)
    watched.fold({"page": "/", "slow": 7}, {"page": "/", "late": 7})
    assert [each.name for each in watched.found()] == ["slow"]

    for _ in range(100):
        watched.fold({"page": "/", "busy": 7})
    assert [each.name for each in watched.found()] == ["slow"]

    watched.now += 61
    watched.fold({"page": "/", "user": 7})
    assert [each.name for each in watched.found()] == ["slow", "user"]


def test_a_type_that_begins_to_fail_is_told(watched: Watched) -> None:
    watched.fold({"page": "/", "hits": 1})
    watched.fold({"page": "/", "hits": 1}, {"page": "/", "hits": "1"}, {"hits": 2}, b"{")
    watched.fold({"page": 7}, {"page": "/", "hits": "2"})

    assert [(each.name, each.proof) for each in watched.found()] == [
        ("wrong_type hits", "visits:0:2"),
        ("missing_field page", "visits:0:3"),
        ("malformed_json", "visits:0:4"),
        ("wrong_type page", "visits:0:5"),
    ]
    first = watched.found()[0]
    assert first.kind == "new_reject"
    assert 'hits is the text "1", not a whole number' in first.text


def test_a_share_of_rejects_that_jumps_is_told(watched: Watched) -> None:
    bad, good = {"page": 7}, {"page": "/"}
    watched.fold(*[good] * 80, *[bad] * 20)
    watched.now += 61
    watched.fold(good)

    (_, share) = watched.found()
    assert share.kind == "share_of_rejects"
    assert "19.8 % of the records of topic visits are rejected, 0.1 % were before" in share.text
    assert share.proof == "visits:0:80"


@pytest.mark.parametrize(
    ("rejected", "before"),
    [
        # Few rejects, a share as it always was, and a topic without a history.
        (9, HISTORY),
        (20, {"visits": {0: Tally(decoded=900, rejected=100)}}),
        (20, {}),
    ],
)
def test_a_usual_share_is_no_drift(
    watched: Watched, rejected: int, before: Mapping[str, Mapping[int, Tally]]
) -> None:
    watched.fold(*[{"page": "/"}] * 80, *[{"page": 7}] * rejected, before=before)
    watched.now += 61
    watched.fold({"page": "/"}, before=before)

    assert {each.kind for each in watched.found()} == {"new_reject"}


@pytest.mark.parametrize(
    "event",
    [
        {"page": "/", "<script>alert(1)</script>": 1},
        {"page": "/", "\ud800": 1},
        {"page": "/", "x" * 10_000: 1},
        {"page": "/", "n\x00\n": 1},
        b'{"page": "/", "page": "/", "more": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"",
        b'{"page": "' + b"x" * (1 << 20) + b'", "more": 1}',
    ],
)
def test_no_event_stops_the_watch(watched: Watched, event: object) -> None:
    watched.fold(event, {"page": "/", "last": 1})

    assert "last" in [each.name for each in watched.found()]
    for each in watched.found():
        assert max(len(each.name), len(each.text), len(each.value)) <= 200


def test_a_flood_of_fields_is_bounded(watched: Watched) -> None:
    for number in range(3 * MOST_DRIFTS):
        watched.fold({"page": "/", f"field_{number}": 1, f"other_{number}": 1})
        watched.now += 61

    assert len(watched.found()) == MOST_DRIFTS


def test_a_full_disk_stops_no_slice(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kappa.engine.job.drift_watch.put_drifts", full)
    watched.fold({"page": "/", "user": 7})

    assert watched.found() == ()


def test_other_formats_are_watched_too(tmp_path: Path) -> None:
    framed = Topic("visits", event="page string not null", format=Json(framed=True))
    watched = Watched(tmp_path, framed)
    watched.fold(b"\x00\x00\x00\x00\x01" + json.dumps({"page": "/", "user": 7}).encode())

    assert [each.name for each in watched.found()] == ["user"]


def test_the_watch_costs_next_to_nothing(watched: Watched) -> None:
    """The watch costs less than a fifth of decoding 1,000 records with one reject in ten."""
    events = [
        json.dumps({"page": 7 if n % 10 == 0 else "/", "hits": n}).encode() for n in range(1000)
    ]
    raw = raw_table(("visits", 0, place, 0, None, value, ()) for place, value in enumerate(events))

    def seconds_of(work: Callable[[], object]) -> float:
        begun = time.thread_time()
        for _ in range(20):
            work()
        return time.thread_time() - begun

    records = SliceHere({"visits": decode_table(raw, VISITS, {}, {})})
    decoding = seconds_of(lambda: SliceHere({"visits": decode_table(raw, VISITS, {}, {})}))

    def look() -> None:
        watched.watch.sample("visits", raw)
        watched.watch.see_slice(records.counts(), records.reject_examples, HISTORY)

    assert seconds_of(look) < decoding / 5
