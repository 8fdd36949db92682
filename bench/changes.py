"""Measures the latency of changes: to an HTTP subscriber, and to a sink's topic.

    python bench --cell changes

The whole platform runs as users run it, with totals for about a million keys. Events are sent at a
steady rate. Meanwhile a probe repeats a query, and a subscriber follows the table
(scripts/subscriber.py); the latency of both is measured for the same events. Then a promote changes
every row. At the end, a sink sends the table's changes while 10,000 rows per second change. The
served rows, the subscriber's rows and the rows in the sink's topic must equal the oracle's.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import fill
from typing import Any

import pyarrow.parquet as pq
from cells import TASKS, Cell
from ground import say
from living import PIPELINE, Platform
from screen import Report, table

from demo.judgement.freshness import Freshness, measure
from demo.judgement.reckoning import answers_in, sent_in
from kappa.base.errors import KappaError
from kappa.replay.status.run_records import served_at
from kappa.serving.outlets.sinks.sink_status import SinkState, read_sink_state
from kappa.state.journal.journal import JournalView
from kappa.state.offsets import Offsets

RATES = (1_000, 10_000)
# Some events of one change set are of the same row: so 10,000 rows change a second.
_SENDING_RATE = 10_500
TOPIC = "bench-totals"
# So many keys for each event: half a row of the table for each.
_KEYS = 0.65
_SECONDS, _WARM_SECONDS, _NAP_SECONDS = 60.0, 15.0, 0.1
_PATIENCE_SECONDS = 900.0


class ChangesPlatform(Platform):
    """A platform with a table of totals by key. Version n of the pipeline adds n to each price.

    If `is_sent` is True, the pipeline also has a sink for the totals.
    """

    is_sent = False

    def declare(self, number: int, *, archived: bool = False) -> None:
        """Writes version `number` of the pipeline's file."""
        assert not archived, "nothing is archived here"
        text = self.cell.fill(TASKS[self.cell.task].pipeline)
        for old, new in (
            ('select("bidder", "price")', f'selectExpr("bidder", "price + {number} as price")'),
            *(
                (
                    ("import Table,", "import Sink, Table,"),
                    ("fold=FOLD)]", f'fold=FOLD), Sink("{TOPIC}", of="totals")]'),
                )
                if self.is_sent
                else ()
            ),
        ):
            assert old in text, old
            text = text.replace(old, new, 1)
        (self.folder / "pipelines" / f"{PIPELINE}.py").write_text(text, encoding="utf-8")

    def refuse(self, number: int, rows: str, whose: str) -> None:
        """Raises KappaError if the rows of version `number` differ from the oracle's.

        `rows` is SQL for the rows. `whose` names their owner in the error message.
        """
        columns = ", ".join(f"{name} - {number} as {name}" for name in ("lowest", "highest"))
        lowered = f"(select bidder, bids, total - {number} * bids as total, {columns} from {rows})"
        if (wrong := self.wrong({"totals": lowered})) is not None:
            raise KappaError(f"no figure: what {whose} has is not the oracle's: {wrong}")


@dataclass(frozen=True, slots=True)
class Reach:
    """The freshness of query answers and of subscriber rows, for the same events at one rate."""

    rate: int
    query: Freshness
    subscriber: Freshness

    @property
    def ratio(self) -> float:
        """Returns the subscriber's median latency divided by the median latency of a query."""
        return self.subscriber.p50 / self.query.p50


@dataclass(frozen=True, slots=True)
class Promoted:
    """The rows that a promote has changed, and the seconds until the subscriber received all.

    `computed` is the number of seconds until the first of these rows arrived. Both times begin at
    the record of the promote.
    """

    rows: int
    seconds: float
    computed: float

    @property
    def rate(self) -> float:
        """Returns the number of changed rows per second, counted from the record of the promote."""
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Sending:
    """The performance of a sink while events arrive at a rate.

    `rate` is the requested rate. `events` and `rows` are per second, `cpu` is in seconds per row,
    and `behind` is the longest delay in seconds. `after` is the number of seconds from the last
    event until the last change set was in the topic.
    """

    rate: int
    events: float
    rows: float
    cpu: float
    behind: float
    after: float


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements of one run of the cell."""

    events: int
    reaches: tuple[Reach, ...]
    promoted: Promoted
    sending: Sending


def main(home: Path, events: int) -> Report | None:
    """Measures the latencies, the promote and the sink.

    Returns None if the rows of the table, the subscriber or the topic differ from the oracle's.
    """
    cell = Cell("changes", "totals", events, int(events * _KEYS), 1, ())
    platform = ChangesPlatform(home, cell, listen="127.0.0.1:0")
    try:
        with platform.up():
            say(f"{events:,} events serve")
            with _subscriber(platform) as followed:
                reaches = tuple(_reach(platform, rate, followed) for rate in RATES)
                promoted = _promoted(platform, followed)
            rows = followed.with_suffix(".parquet")
            platform.refuse(1, f"read_parquet('{rows}')", "a subscriber")
            sending = _sending(platform, _SENDING_RATE)
            platform.refuse(1, _rows_of_topic(platform), "the topic")
            platform.refuse(1, platform.served("totals"), "the table")
    except KappaError as error:
        if not error.message.startswith("no figure"):
            raise
        say(error.message)
        return None
    shutil.rmtree(platform.folder)
    found = Found(events, reaches, promoted, sending)
    return Report(_line(found), found, _page(found))


@contextmanager
def _subscriber(platform: Platform) -> Iterator[Path]:
    """Runs the subscriber during the block. Yields the file to which it writes change sets."""
    url, out = served_at(platform.store), platform.folder / "followed"
    assert url is not None, "the platform serves HTTP"
    followed = out.with_suffix(".jsonl")
    with platform.script("subscriber", url, "totals", str(out)):
        _wait(lambda: followed.exists() and bool(_sets(followed)), "the subscriber's snapshot")
        yield followed


def _reach(platform: Platform, rate: int, followed: Path) -> Reach:
    """Sends live events, and measures the latencies of the probe and of the subscriber."""
    name = f"{rate}-{secrets.token_hex(2)}"
    ledger, answers = platform.folder / f"{name}.parquet", platform.folder / f"{name}.jsonl"
    with platform.live_events(rate, ledger, answers):
        time.sleep(_WARM_SECONDS)
        since = time.monotonic()
        time.sleep(_SECONDS)
        until = time.monotonic()
    end = platform.end()
    _wait(lambda: _offsets(_sets(followed)[-1]).covers(end), "the subscriber's last change set")
    sent = sent_in(pq.read_table(ledger))
    events = sum(since <= at < until for each in sent.values() for _, at in each)
    query, subscriber = (
        measure(sent, seen, topic=platform.cell.topic, since=since, until=until)
        for seen in (
            answers_in(answers),
            [(float(each["at"]), _offsets(each)) for each in _sets(followed)],
        )
    )
    if query is None or subscriber is None or {query.events, subscriber.events} != {events}:
        raise KappaError(f"{events} events were sent, and not all of them seen", hint=name)
    found = Reach(rate, query, subscriber)
    say(f"{rate:,} a second: a query {query}; a subscriber {subscriber} ({found.ratio:.2f})")
    return found


def _promoted(platform: Platform, followed: Path) -> Promoted:
    """Deploys a version that changes all rows, and waits until the subscriber has received them."""
    platform.declare(1)
    platform.kappa("deploy", "--yes")
    _wait(lambda: _sets(followed)[-1]["kind"] == "promote", "the promote's change set")
    _, record = JournalView(platform.store).last_served()
    assert record is not None, "a build serves"
    change_set = _sets(followed)[-1]
    served = datetime.fromisoformat(record.at).timestamp()
    found = Promoted(
        sum(change_set["changes"].values()),
        float(change_set["wall"]) - served,
        float(change_set["begun"]) - served,
    )
    say(f"a promote of {found.rows:,} rows took {found.seconds:.1f} s: {found.rate:,.0f} a second")
    return found


def _sending(platform: ChangesPlatform, rate: int) -> Sending:
    """Deploys a sink, sends live events, and measures the sink's rate, CPU time and delay."""
    platform.is_sent = True
    platform.declare(1)
    platform.kappa("deploy", "--yes")
    _wait(lambda: _state(platform).current_at > time.time() - 2, "the sink's first rows")
    say(f"the sink has sent {_state(platform).written:,} rows")
    ledger, behind = platform.folder / "sending.parquet", list[float]()
    with platform.sent_events(rate, ledger):
        time.sleep(_WARM_SECONDS)
        before, written, since = platform.taken(), _state(platform).written, time.monotonic()
        while time.monotonic() < since + _SECONDS:
            time.sleep(1.0)
            behind.append(time.time() - _state(platform).current_at)
        after, rows, until = platform.taken(), _state(platform).written, time.monotonic()
    ended = time.time()
    platform.wait_for_all()
    settled = time.time()
    _wait(lambda: _state(platform).current_at > settled, "the sink's last rows")
    sent = sent_in(pq.read_table(ledger))
    events = sum(since <= at < until for each in sent.values() for _, at in each)
    found = Sending(
        rate,
        events / (until - since),
        (rows - written) / (until - since),
        (after["courier"].cpu - before["courier"].cpu) / max(rows - written, 1),
        max(behind),
        _state(platform).current_at - ended,
    )
    say(f"a sink beside {rate:,} events a second: {found}")
    return found


def _state(platform: Platform) -> SinkState:
    return read_sink_state(platform.store, TOPIC) or SinkState(TOPIC, "", "", "starts")


def _rows_of_topic(platform: Platform) -> str:
    """Returns DuckDB SQL that reads the newest value of each key in the sink's topic.

    Keys whose newest record is a tombstone are left out.
    """
    log, rows = platform.log, dict[bytes, bytes]()
    for record in log.records([TOPIC], log.beginning([TOPIC]), log.end([TOPIC])):
        assert record.key is not None, "a sink's record has a key"
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value
    kept = platform.folder / "topic.jsonl"
    with kept.open("wb") as lines:
        lines.writelines(value + b"\n" for value in rows.values())
    return f"read_json('{kept}', format = 'newline_delimited')"


def _sets(followed: Path) -> list[dict[str, Any]]:
    """Returns the description of each change set that the subscriber has written so far.

    `followed` is the subscriber's file. An incomplete last line of the file is ignored.
    """
    lines = followed.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _offsets(change_set: dict[str, Any]) -> Offsets:
    return Offsets.parse(change_set["offsets"])


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not until():
        if time.monotonic() > deadline:
            raise KappaError(f"{what} did not come", hint="see the logs of the cell's platform")
        time.sleep(_NAP_SECONDS)


def _line(found: Found) -> str:
    reaches = "; ".join(
        f"{each.rate}/s to a query p50 {each.query.p50:.2f} s, to a subscriber "
        f"{each.subscriber.p50:.2f} s ({each.ratio:.2f}x)"
        for each in found.reaches
    )
    promoted, sending = found.promoted, found.sending
    return (
        f"bench changes, {found.events} events: {reaches}; a promote of {promoted.rows} rows in "
        f"{promoted.seconds:.1f} s, {promoted.rate:.0f} rows/s; a sink beside {sending.rate} "
        f"events/s {sending.rows:.0f} rows/s ({sending.rows / sending.events:.2f} of the events), "
        f"{sending.behind:.1f} s behind at most"
    )


def _page(found: Found) -> str:
    promoted, sending = found.promoted, found.sending
    heads = (
        *("events a second", "events"),
        *("to a query: p50, p99, s", "to a subscriber: p50, p99, s", "ratio of p50"),
    )
    reaches = (
        (
            f"{each.rate:,}",
            f"{each.query.events:,}",
            f"{each.query.p50:.2f}, {each.query.p99:.2f}",
            f"{each.subscriber.p50:.2f}, {each.subscriber.p99:.2f}",
            f"{each.ratio:.2f}",
        )
        for each in found.reaches
    )
    promote = (
        f"A promote that changes {promoted.rows:,} rows: the subscriber has all of them "
        f"{promoted.seconds:.1f} s after the record that lets the new build serve, "
        f"{promoted.rate:,.0f} rows a second; the first ones after {promoted.computed:.1f} s."
    )
    sink = (
        f"A sink beside its job and {sending.events:,.0f} events a second: {sending.rows:,.0f} "
        f"rows a second, {sending.cpu * 1e6:.0f} us of the courier's CPU each, "
        f"{sending.behind:.1f} s behind what serves at most; {sending.after:.1f} s after the last "
        "event its topic has all."
    )
    return "\n\n".join((table(heads, reaches, words=()), fill(promote, 100), fill(sink, 100)))
