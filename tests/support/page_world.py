"""A platform with a history, made by hand, for tests of the page.

Its builds have served, serve, wait or have failed; it has tables and rejects. `EVIL` is in every
place that a stranger can write: in records, keys, reasons and names of people.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from unittest import mock

import pyarrow as pa
from births import make_birth
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from msgspec.structs import replace

from kappa.base.process import process_id
from kappa.code.code_snapshot import ensure_snapshot, hash_files
from kappa.declare.alert import KAPPA, AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.tally import Tally
from kappa.kafka.client import TopicFacts
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.kafka.reader import Record
from kappa.replay.rollout.current_state import current_state
from kappa.replay.status.context import ProjectContext
from kappa.replay.status.run_records import Running, put_running
from kappa.replay.status.status_cache import SharedLooks
from kappa.serving.outlets.alerts.channels import ShownOnPage
from kappa.serving.outlets.alerts.message import Message, time_as_text
from kappa.serving.outlets.alerts.notices import Notice, notice_message
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    DeadLetter,
    Missed,
    Outbox,
    put_alert_progress,
    put_dead_letter,
    put_outbox,
)
from kappa.state.build import TopicBirth, put_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Check,
    Difference,
    Event,
    Failed,
    Held,
    OutcomeCount,
    Receipt,
    Served,
    Staged,
    Verified,
)
from kappa.state.journal.journal import Journal
from kappa.state.journal.projections import begun_after
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

EVIL = "<script>alert('x')</script>\"'&{{ 7*7 }}"
HITS = TableBirth(
    "page_hits",
    (("page", "string"), ("minute", "timestamp"), ("hits", "bigint")),
    keys=("page", "minute"),
    fold={"hits": ("count", None)},
    checks=("hits > 0",),
)
ROWS = 40
ALERTS = (
    AlertBirth("busy", "page_hits", "page", where="hits > 9"),
    AlertBirth("late", "page_hits", "https://canary:1/canary"),
)

_JSON_VALUE = json.dumps({"page": EVIL, "n": [1]}).replace("[1]", "[1.10]").encode()
BY_PAGE = "select page, sum(hits)::bigint as hits from page_hits group by page order by page"


class FakeLog:
    """A broker for the pages, with one topic of two partitions that contain an evil record.

    It has another topic, which does not belong to this platform.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.others: tuple[str, ...] = ()
        self.newest = 1234
        self.produced: list[ProducedRecord] = []

    def topics(self) -> dict[str, TopicFacts]:
        return {
            "visits": TopicFacts("visits", "id", self.partitions),
            "salaries": TopicFacts("salaries", "id2", 1),
            **{name: TopicFacts(name, name, 1) for name in self.others},
        }

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return self._of(topics, 0)

    def end(self, topics: Iterable[str]) -> Offsets:
        return self._of(topics, self.newest)

    def at_time(self, topics: Iterable[str], _: int) -> Offsets:
        return self._of(topics, 1000)

    def high_watermark(self, topics: Iterable[str]) -> Offsets:
        return self._of(topics, self.newest)

    def facts(self, topic: str) -> TopicFacts | None:
        return self.topics().get(topic)

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {"cleanup.policy": "delete", "retention.ms": "604800000"} for name in names}

    def newest_times(self, names: Iterable[str]) -> dict[str, int]:
        return {name: int(1000 * (time.time() - 90)) for name in names if name != "salaries"}

    def produce(self, records: Iterable[ProducedRecord], topic: str) -> Acknowledged:
        self.produced += records
        return Acknowledged(len(self.produced), Offsets({topic: {0: 1234}}))

    def records(self, _: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        for topic, partition, last in end.items():
            for offset in range(start.at(topic, partition), last):
                # Bytes, nearly JSON, and JSON with a number that a float would change.
                values = (f'{{"page": "{EVIL}"}}'.encode(), b"\xff\x00", _JSON_VALUE, b"\xff\x00")
                value = values[offset % 4]
                at = 1_790_000_000_000 + 977 * offset * (partition + 1)
                yield Record(topic, partition, offset, at, EVIL.encode(), value, ())

    def _of(self, topics: Iterable[str], offset: int) -> Offsets:
        of = {
            "visits": {number: offset // (number + 1) for number in range(self.partitions)},
            "salaries": {0: offset},
            **{name: {0: offset} for name in self.others},
        }
        return Offsets({name: of[name] for name in topics})


class World:
    """The project, and the answers of its broker."""

    def __init__(
        self, folder: Path, version_of: Callable[[str], str] = "version-of-{}".format
    ) -> None:
        (folder / "kappa.toml").touch()
        self.version_of = version_of
        self.store = Store(folder / ".kappa")
        self.journal = Journal(self.store)
        self.now = datetime.now(UTC)
        self.here = ProjectContext(folder, None)
        self.log = FakeLog()
        self.hits, self.declared_alerts = HITS, ALERTS
        self.desk = SharedLooks(self.here, connect=lambda: self.log)  # type: ignore[arg-type, return-value]

    def be_up(self) -> None:
        """Makes this process look like the supervisor."""
        me = process_id(os.getpid())
        assert me is not None
        put_running(self.store, Running(me.pid, me.born, "127.0.0.1:1", ""))

    def append(self, *events: Event, ago: float = 0.0) -> None:
        """Appends events to the journal, dated some seconds `ago`."""
        last = max((record.number for record in self.journal.after(0)), default=0)
        for number, event in enumerate(events, start=last + 1):
            at = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="milliseconds")
            with mock.patch("kappa.state.journal.journal.now", lambda at=at: at):
                assert self.journal.append(number, event) is not None

    def build(
        self,
        name: str,
        *,
        hits: int = 1,
        rows: int = ROWS,
        offset: int = 1000,
        evil: str = "",
        by_page: str | None = None,
        sinks: tuple[SinkBirth, ...] = (),
        pattern: str | None = None,
        pipeline: str = "web",
        code: str = "",
        redriven: tuple[int, ...] = (),
        born_ago: float = 3000,
    ) -> str:
        """Makes a build with its tables, and an hour of frontiers.

        `rows` is the number of rows of its table, and `code` is the content of its pipeline's file.
        The rejects at the offsets `redriven` have been corrected. For a pipeline other than `web`,
        the table has another name, and there is no view.
        """
        table = self.hits if pipeline == "web" else replace(HITS, name=f"hits_{name}")
        view = {"by_page": by_page or BY_PAGE} if pipeline == "web" else {}
        tables = (table, REJECTS_BIRTH)
        topics = (TopicBirth("visits", "id", "retained", 2, pattern),)
        files = {"pipelines/web.py": code.encode()} if code else {}
        ensure_snapshot(self.store, name, files)
        put_birth(
            self.store,
            make_birth(
                name,
                tables,
                topics=topics,
                pipeline=pipeline,
                version=self.version_of(name),
                parts={"function pipelines/web.py:web": str(hash(code))} if code else {},
                sources=hash_files(files),
                views=view,
                born_at=self._ago(born_ago),
                by="ada@test",
                sinks=sinks,
                alerts=self.declared_alerts,
            ),
        )
        versions = {
            table.name: self._write(name, table, self._hits_of(name, hits, rows, evil)),
            "rejects": self._write(
                name, REJECTS_BIRTH, self._rejects(evil, redriven) if evil else None
            ),
        }
        frontiers = Frontiers(self.store, name)
        for number in range(1, 41):
            seconds = 3602 - 90 * number
            at = self._reached(offset, number, seconds)
            tally, ago = {"visits": self._tally(offset, at)}, self._ago(seconds)
            times = {"visits": {0: self._log_time(at), 1: 0}}
            frontier = Frontier(number, name, 1, at, versions, ago, tally=tally, log_time=times)
            frontiers.publish(frontier)
        put_kept_frontier(self.store, KeptFrontierRecord(frontier, generations=(1, 2, 3)))
        return name

    def grows(self, build: str, *, hits: int) -> None:
        """Appends a row of a new page to a build's table, and publishes a frontier with it."""
        frontiers = Frontiers(self.store, build)
        last = frontiers.newest()
        assert last is not None
        version = last.versions["page_hits"] + 1
        at = datetime(2026, 1, 2, tzinfo=UTC) + timedelta(minutes=version)
        row = {"page": ["/new"], "minute": [at], "hits": [hits]}
        self._write(build, HITS, pa.table(row))
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        versions = {**last.versions, "page_hits": version}
        frontiers.publish(replace(last, number=last.number + 1, versions=versions, published_at=at))

    def declares_board(self, name: str, text: str) -> None:
        """Writes a board's file into the project."""
        folder = self.here.settings.project / "boards"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")

    def goes_live(
        self,
        build: str,
        generation: int,
        before: str | None = None,
        *,
        reasons: tuple[str, ...] = ("new",),
        ago: float = 0.0,
        pipeline: str = "web",
    ) -> None:
        """Brings a build to serve: staged, caught up, verified, held, served, with a receipt.

        The build begins to serve some seconds `ago`, after a replay of a minute.
        """
        self.append(Staged(pipeline, build, self.version_of(build), reasons), ago=ago + 75)
        rollout = max(record.number for record in self.journal.after(0))
        self.append(CaughtUp(rollout, self._offsets(1000)), ago=ago + 15)
        self.append(self.verified(rollout, before, rows=ROWS), ago=ago + 3)
        self.switches(
            rollout, build, generation, before, reasons=reasons, ago=ago, pipeline=pipeline
        )

    def switches(
        self,
        rollout: int,
        build: str,
        generation: int,
        before: str | None,
        *,
        reasons: tuple[str, ...] = (),
        ago: float = 0.0,
        pipeline: str = "web",
    ) -> None:
        """Makes a rollout's build serve: held, served, with a receipt."""
        if before is not None:
            self.append(Held(rollout, before, 1), ago=ago)
        receipt = Receipt(
            *(pipeline, build, self.version_of(build), self._offsets(1000), before),
            None if before is None else self._offsets(990),
            reasons=reasons,
            first=before is None,
        )
        serving = {**current_state(self.store).serving, pipeline: build}
        self.append(Served(rollout, generation, serving, receipt), ago=ago)

    def waits(self, build: str, live: str, *, reason: str = "", ago: float = 0.0) -> int:
        """Makes a candidate that is ready and compared; returns the number of its rollout.

        The candidate has been ready for `ago` seconds, after a replay that took twice as long.
        """
        reasons = (reason or f"function web changed {EVIL}",)
        candidate = Staged("web", build, self.version_of(build), reasons, auto_promote=False)
        self.append(candidate, ago=3.2 * ago)
        rollout = max(record.number for record in self.journal.after(0))
        self.append(CaughtUp(rollout, self._offsets(1000)), ago=1.2 * ago)
        self.append(self.verified(rollout, live), ago=ago)
        return len(reduce(begun_after, self.journal.after(0), tuple[int, ...]()))

    def verified(self, rollout: int, live: str | None, *, rows: int = ROWS + 2) -> Verified:
        """Returns the verdict on a candidate of so many rows, compared with the live build."""
        checks = (
            Check("page_hits", "hits > 0", rows, 0),
            Check("page_hits", f"page <> '{EVIL}'", rows, 0),
        )
        more = rows - ROWS
        changed = {"hits": ROWS}
        difference = Difference("page_hits", ROWS, rows, more, 0, ROWS, changed, {"hits": 0.5})
        return Verified(
            *(rollout, "passed", self._offsets(1000), checks, "", live),
            (difference,) if live else (),
            (OutcomeCount("visits", "rejected", 4, 3),),
            rejected=3,
            records=1000,
        )

    def lives(self) -> int:
        """Makes the whole history, and returns the number of the rollout that waits.

        The history has two generations, a kept build, the waiting candidate, a candidate that
        failed, and one that was abandoned.
        """
        for number, hits, rows in ((1, 1, ROWS), (2, 1, ROWS), (3, 2, ROWS + 2)):
            self.build(f"web-{number}", hits=hits, rows=rows, evil=EVIL)
        self.goes_live("web-1", 1, ago=5400)
        self.goes_live("web-2", 2, "web-1", reasons=(f"table page_hits changed {EVIL}",), ago=1800)
        for build, end in (
            ("web-f", lambda number: Failed(number, f"check failed {EVIL}", "mend it")),
            ("web-a", lambda number: Abandoned(number, f"by hand {EVIL}")),
        ):
            self.append(Staged("web", build, "version-of-it", ("function web changed",)))
            self.append(end(max(record.number for record in self.journal.after(0))))
        self.alerts()
        return self.waits("web-3", "web-2")

    def alerts(self) -> None:
        """Makes an alert with messages on the page, and an alert that has given up a message."""
        at = self.now.timestamp()
        for op, place in (("insert", {"after": {"page": EVIL}}), ("more", {"more": 7})):
            body = {"alert": "busy", "id": op, "op": op, **place, "at": time_as_text(at)}
            ShownOnPage(self.store, "busy").send(Message(op, json.dumps(body)))
        body = {"alert": "late", "id": "msg_1", "op": "delete", "key": {"page": EVIL}}
        message = Message("msg_1", json.dumps(body))
        put_outbox(self.store, "late", Outbox(1, "1.web-1.1", at, (message,), Missed(at - 60, at)))
        put_dead_letter(
            self.store, "late", DeadLetter(message, f"refused {EVIL}", 3, time_as_text(at))
        )
        progress = AlertProgress(1, 0, 2, at, at + 60, 5, at - 1, "canary answered 500")
        put_alert_progress(self.store, "late", progress)

    def notices(self) -> None:
        """Shows notices on the page: a failed rollout, a stopped build, drift, and a full disk."""
        found = (
            Notice("f", "rollout_failed", f"rollout 3 failed {EVIL}", EVIL, EVIL, "web-f", 3),
            Notice("s", "build_stopped", "the job has stopped", "mend it", "web", EVIL),
            Notice(
                "d", "drift", f"field {EVIL}", EVIL, "web", "web-2", None, f"visits:0:7: {EVIL}"
            ),
            Notice("disk", "disk_full", "the disk is full", proof=EVIL),
        )
        for number, notice in enumerate(found):
            message = notice_message(notice, self.now.timestamp() - 60 * number)
            ShownOnPage(self.store, KAPPA).send(message)

    def _hits_of(self, name: str, hits: int, rows: int, evil: str) -> pa.Table:  # noqa: ARG002  # for subclasses
        """Returns the rows of the table of hits of the build `name`.

        The text `evil` is in the first row, and in the last row that all builds have.
        """
        begun = datetime(2026, 1, 1, tzinfo=UTC)
        columns = {
            "page": [
                f"/page/{number % 8}" if number not in {0, ROWS - 1} else f"/{evil}"
                for number in range(rows)
            ],
            "minute": [begun + timedelta(minutes=number) for number in range(rows)],
            "hits": [hits * (number + 1) for number in range(rows)],
        }
        return pa.table(columns)

    def _reached(self, offset: int, number: int, _: float) -> Offsets:
        """Returns the offsets of the frontier `number` of 40, which is some seconds old."""
        return self._offsets(offset * number // 40)

    def _log_time(self, _: Offsets) -> int:
        """Returns the time of the newest record below a frontier's offsets, in milliseconds."""
        return int(1000 * (self.now.timestamp() - 90))

    def _tally(self, offset: int, _: Offsets) -> dict[int, Tally]:
        """Returns the outcomes of the records below a frontier's offsets, by partition."""
        return {0: Tally(decoded=offset, rejected=3, late=1)}

    def _offsets(self, count: int) -> Offsets:
        return Offsets({"visits": {0: count, 1: count // 2}})

    def _ago(self, seconds: float) -> str:
        return (self.now - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")

    def _rejects(self, evil: str, redriven: tuple[int, ...]) -> pa.Table:
        schema = arrow_schema(REJECTS_BIRTH.columns)
        known = {
            "topic": "visits", "partition": 0, "offset": 7, "timestamp": self.now,
            "key": evil.encode(), "value": f'{{"page": "{evil}"'.encode(),
            "reason": "no_json", "detail": f"cut off {evil}",
        }  # fmt: skip
        row = {field.name: known.get(field.name) for field in schema}
        # A redriven record that was folded leaves a row that readers do not see.
        mended = [
            {**row, "offset": 100 + each, "_redrives": each, "_deleted": True} for each in redriven
        ]
        rows = [row, {**row, "offset": 8, "value": b"\xff\xfe\x00"}, *mended]
        return pa.Table.from_pylist(rows, schema=schema)

    def _write(self, build: str, table: TableBirth, rows: pa.Table | None) -> int:
        """Appends rows to a table, and returns the version of the table."""
        schema = arrow_schema(table.columns)
        # By a transaction the commit is a slice's, and no upkeep's.
        slices = CommitProperties(app_transactions=[Transaction(build, time.time_ns())])
        write_deltalake(
            table_path(self.store, build, table.name),
            schema.empty_table() if rows is None else rows.cast(schema),
            mode="append",
            commit_properties=slices,
        )
        return DeltaTable(table_path(self.store, build, table.name)).version()
