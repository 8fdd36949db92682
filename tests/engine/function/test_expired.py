"""Rows expire by the log's clock, and a record that comes too late for its row is a reject."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from rehearsing import Rehearse, memory_log
from shares import long_except

from kappa import Table, Topic, View, count, pipeline, set_, sum_, tumble
from kappa.base.duck import open_connection
from kappa.base.errors import Broken
from kappa.declare.table import Expiry
from kappa.declare.values.arrow import arrow_schema
from kappa.state.build import table_path
from kappa.state.log_clock import log_clock
from kappa.state.offsets import Offsets
from kappa.state.table import TableBirth
from kappa.tables.versions import files
from kappa.tables.views.served_rows_sql import served_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal
    from kappa.engine.write.maintenance import Maintenance
    from kappa.state.frontier import Frontier

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

CLICKS = Topic("clicks", event="page string, at timestamp, ms bigint", partitions=2)
PRICES = Topic("prices", key="id", event="id int not null, until timestamp", partitions=2)
BRANDS = Topic("brands", kind="compacted", key="id", event="id int not null, until timestamp")
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
# The tables whose rows expire.
EXPIRE = {"minutes", "pages", "raw", "prices", "brands"}


@pipeline(
    reads={"clicks": CLICKS, "prices": PRICES, "brands": BRANDS},
    writes=[
        Table(
            "minutes",
            keys=("minute", "page"),
            fold={"clicks": count(), "ms": sum_("ms")},
            expire="minute",
            after="5 minutes",
        ),
        Table(
            "pages", keys=("minute",), fold={"pages": set_("page")}, expire="minute", after="9 m"
        ),
        Table("raw", expire="at", after="7 minutes"),
        Table("totals", keys=("page",), fold={"clicks": count()}),
        Table("prices", latest=PRICES, expire="until", after="0 s"),
        Table("brands", latest=BRANDS, expire="until", after="1 minute"),
        View(
            "busy",
            "select page, sum(clicks)::bigint as n from minutes group by page",
            keys=("page",),
        ),
        View("both", "select id, p.until from prices p join brands b using (id)", keys=("id",)),
    ],
)
def expiring(clicks: DataFrame) -> dict[str, DataFrame]:
    by_minute = clicks.withColumn("minute", tumble("at", "1 minute"))
    place = ("_log_time", "_topic", "_partition", "_offset")
    return {
        "minutes": by_minute,
        "pages": by_minute,
        "raw": clicks.select("page", "at", *place),
        "totals": clicks,
    }


def at_text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def put(log: MemoryLog, draw: random.Random, now: datetime, *, quiet: bool = False) -> None:
    """Adds a record of about this time to one of the topics. A click may be very late."""
    ms = int((now + draw.choice([0, 0, -1, 2]) * MINUTE).timestamp() * 1000)
    if draw.random() < 0.6:
        late = draw.choice([0, 0, 1, 2, 4, 5, 6, 8, 20])
        at = draw.choice([now - late * MINUTE] * 9 + [None])
        click = {"page": draw.choice("ab"), "at": at_text(at), "ms": draw.randrange(9)}
        log.add("clicks", 0 if quiet else draw.randrange(2), json.dumps(click).encode(), ms=ms)
        return
    topic, key = draw.choice(["prices", "brands"]), draw.randrange(4)
    until = draw.choice([now + draw.randrange(-3, 9) * MINUTE] * 9 + [None])
    value = json.dumps({"id": key, "until": at_text(until)}).encode()
    if topic == "brands" and draw.random() < 0.2:
        value = None
    # A key may be in both partitions, as after partitions were added.
    partition = 0 if topic == "brands" else draw.randrange(2)
    log.add(topic, partition, value, key=str(key).encode(), ms=ms)


class Expected:
    """The right tables as readers see them at `end`, computed record by record."""

    def __init__(self, log: MemoryLog, end: Offsets) -> None:
        self.log_times: dict[tuple[str, int], datetime] = {}
        self.minutes: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        self.pages: dict[Any, set[str]] = defaultdict(set)
        self.raw: list[Any] = []
        self.totals = Counter[str]()
        self.rejects: set[Any] = set()
        self.newest: dict[str, dict[int, Any]] = {"prices": {}, "brands": {}}
        for topic, partition, offset, micros, key, value, _ in log.records:
            at = topic, partition
            if offset < end.at(*at):
                time = datetime.fromtimestamp(micros / 1e6, UTC)
                self.log_times[at] = max(self.log_times.get(at, time), time)
                event = None if value is None else json.loads(value)
                if topic == "clicks":
                    self._click(event, (*at, offset), self.log_times[at])
                else:
                    row, of_topic = ((self.log_times[at], *at, offset), event), self.newest[topic]
                    id_ = int(key or b"")
                    of_topic[id_] = max(row, of_topic.get(id_, row), key=lambda each: each[0])

    def _click(self, event: dict[str, Any], place: tuple[str, int, int], passed: datetime) -> None:
        at = time_of(event["at"])
        minute = None if at is None else at.replace(second=0)
        if minute and at and (minute + 5 * MINUTE < passed or at + 7 * MINUTE < passed):
            self.rejects.add(place)
            return
        page = event["page"]
        self.minutes[minute, page][0] += 1
        self.minutes[minute, page][1] += event["ms"]
        self.pages[minute].add(page)
        self.raw.append((page, at))
        self.totals[page] += 1

    def _sees(self, time: datetime | None, minutes: int) -> bool:
        parts = [(topic, part) for topic in ("clicks", "prices") for part in range(2)]
        if time is None or any(part not in self.log_times for part in parts):
            return True
        return time + minutes * MINUTE >= min(self.log_times[part] for part in parts)

    def seen(self) -> dict[str, Any]:
        """Returns the rows that readers see, by table."""
        latest = {
            topic: {
                (key, until)
                for key, (_, event) in rows.items()
                if event and self._sees(until := time_of(event["until"]), minutes)
            }
            for topic, minutes in (("prices", 0), ("brands", 1))
            for rows in (self.newest[topic],)
        }
        minutes = {key: row for key, row in self.minutes.items() if self._sees(key[0], 5)}
        busy = Counter[str]()
        for (_, page), (clicks, _) in minutes.items():
            busy[page] += clicks
        prices = dict(latest["prices"])
        return {
            "minutes": {(*key, *row) for key, row in minutes.items()},
            "pages": {
                (key, *sorted(pages)) for key, pages in self.pages.items() if self._sees(key, 9)
            },
            "raw": Counter(row for row in self.raw if self._sees(row[1], 7)),
            "totals": set(self.totals.items()),
            **latest,
            "rejects": self.rejects,
            "busy": set(busy.items()),
            "both": {(key, prices[key]) for key, _ in latest["brands"] if key in prices},
        }


def time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def seen(built: Rehearsal, frontier: Frontier | None = None) -> dict[str, Any]:
    """Reads a build's tables at `frontier`, or at its newest frontier, as readers do."""
    from kappa.serving.query.reader.relations import tables_of

    at = frontier or built.publisher.newest
    tables = tables_of(built.birth, at, built.store, listed=files)
    with open_connection() as duck:

        def rows(name: str, columns: str) -> list[tuple[Any, ...]]:
            return duck.sql(f"select {columns} from ({tables[name].sql})").fetchall()

        return {
            "minutes": set(rows("minutes", "minute, page, clicks, ms")),
            "pages": {(at, *sorted(pages)) for at, pages in rows("pages", "minute, pages")},
            "raw": Counter(rows("raw", 'page, "at"')),
            "totals": set(rows("totals", "page, clicks")),
            "prices": set(rows("prices", "id, until")),
            "brands": set(rows("brands", "id, until")),
            "rejects": set(rows("rejects", 'topic, partition, "offset"')),
            "busy": set(rows("busy", "page, n")),
            "both": set(rows("both", "id, until")),
        }


@pytest.mark.parametrize(("driver_rows", "slices"), long_except([(1_000, 9)], [(1_000, 9), (0, 2)]))
def test_at_each_frontier_readers_see_what_is_not_gone_whatever_the_slices(
    rehearse: Rehearse, driver_rows: int, slices: int
) -> None:
    """The first slices leave a partition without a record. Until it has one, nothing expires."""
    draw, log = random.Random(28), memory_log()
    built = rehearse(expiring, log, driver_rows)
    for number in range(slices):
        for _ in range(60 // slices if number % 4 < 2 else draw.choice([1, 9])):
            now = BEGAN + number * 20 // slices * MINUTE
            now += timedelta(seconds=draw.randrange(90))
            put(log, draw, now, quiet=number < slices // 2)
        if number == slices - 2:
            built.die_before_the_frontier_of(log.end)
            built.begin(driver_rows=driver_rows)
        built.fold(log.end)
        expected = Expected(log, log.end)
        assert seen(built) == expected.seen(), number
        of_clicks = built.publisher.newest.tally["clicks"][0]
        assert of_clicks.rejected == sum(place[1] == 0 for place in expected.rejects)
        assert of_clicks.decoded + of_clicks.rejected == log.end.at("clicks", 0)
    assert expected.rejects
    assert 0 < seen(built)["raw"].total() < len(expected.raw)
    whole = rehearse(expiring, log)
    whole.fold(log.end)
    assert seen(whole) == expected.seen()


def upkeep_of(built: Rehearsal, **kept: float) -> Maintenance:
    from kappa.engine.write.maintenance import Maintenance

    writers, publisher = built.slices.writers, built.publisher
    return Maintenance(built.store, built.birth, writers, publisher, seconds=0, **kept)


@pytest.mark.long
def test_rows_that_are_gone_leave_the_files_and_older_frontiers_keep_theirs(
    rehearse: Rehearse,
) -> None:
    from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier

    draw, log = random.Random(7), memory_log()
    built = rehearse(expiring, log)
    upkeep = upkeep_of(built, keep_seconds=1e9)
    then: list[tuple[Frontier, Any]] = []
    left = set[str]()
    for number in range(6):
        for _ in range(30):
            put(log, draw, BEGAN + number * 5 * MINUTE + timedelta(seconds=draw.randrange(90)))
        built.fold(log.end)
        expected = Expected(log, log.end)
        then.append((built.publisher.newest, expected.seen()))
        put_kept_frontier(built.store, KeptFrontierRecord(built.publisher.newest))
        marks = [writer.mark() for writer in built.slices.writers]
        upkeep.run()
        assert [writer.mark() for writer in built.slices.writers] == marks
        assert seen(built) == expected.seen()
        for table in EXPIRE:
            every = expected.newest[table] if table in expected.newest else vars(expected)[table]
            stored = built.table(table).num_rows
            left |= {table} if stored < len(every) else set()
            if table in {"minutes", "pages", "raw"}:
                rows = expected.seen()[table]
                there = rows.total() if isinstance(rows, Counter) else len(rows)
                assert (stored - there) * 10 < max(stored, 1)
    assert left == EXPIRE
    assert built.table("both").num_rows <= len(expected.seen()["both"]) + 1
    for frontier, found in then:
        assert seen(built, frontier) == found


@pipeline(
    reads={"prices": PRICES},
    writes=[Table("prices", latest=PRICES, expire="until", after="0 s")],
)
def pricing() -> dict[str, DataFrame]:
    return {}


def test_a_newest_value_that_is_gone_stands_in_the_way_of_older_ones(rehearse: Rehearse) -> None:
    """An expired newest value hides older values of its key.

    It leaves the files once each partition's clock is past it, because then no older value can
    follow.
    """
    log = memory_log()
    built = rehearse(pricing, log)
    upkeep = upkeep_of(built)

    def seen_after(partition: int, key: int, minutes: float, until: float) -> list[int]:
        value = {"id": key, "until": at_text(BEGAN + until * MINUTE)}
        ms = int((BEGAN + minutes * MINUTE).timestamp() * 1000)
        log.add("prices", partition, json.dumps(value).encode(), key=str(key).encode(), ms=ms)
        built.fold(log.end)
        upkeep.run()
        return [row[0] for row in rows_seen(built, "prices")]

    assert seen_after(0, 7, 60, until=10) == [7]
    assert seen_after(1, 8, 30, until=90) == [8]
    assert seen_after(1, 7, 40, until=90) == [8]
    assert built.table("prices").num_rows == 2
    assert seen_after(1, 9, 61, until=90) == [8, 9]
    assert built.table("prices").num_rows == 3
    seen_after(0, 8, 62, until=95)
    assert sorted(built.table("prices")["id"].to_pylist()) == [8, 9]
    assert seen_after(0, 7, 63, until=95) == [7, 8, 9]


def test_a_replay_of_a_log_whose_beginning_has_expired_gives_the_same_rows(
    rehearse: Rehearse,
) -> None:
    """The topic keeps its records for longer than lifetime of rows and lateness together."""
    draw, log = random.Random(3), memory_log()
    live = rehearse(ending, log)
    for number in range(8):
        if number == 3:
            lost = log.end
        for _ in range(25):
            behind = draw.choice([0, 0, 2, 5, 9])
            click(log, draw.randrange(2), number * 5 + draw.random(), late=behind)
        live.fold(log.end)
    late = rehearse(ending, log, birth=replace(live.birth, origin=lost.plain()))
    late.fold(log.end)

    assert rows_seen(late, "minutes") == rows_seen(live, "minutes") != []
    assert rows_seen(late, "raw") == rows_seen(live, "raw") != []
    assert live.table("minutes").num_rows > late.table("minutes").num_rows


def rows_seen(built: Rehearsal, table: str) -> list[tuple[Any, ...]]:
    from kappa.serving.query.reader.relations import tables_of

    sql = tables_of(built.birth, built.publisher.newest, built.store, listed=files)[table].sql
    with open_connection() as duck:
        return duck.sql(f"from ({sql}) order by all").fetchall()


@pipeline(
    reads={"clicks": CLICKS},
    writes=[
        Table("minutes", keys=("minute",), fold={"clicks": count()}, expire="minute", after="5 m"),
        Table("raw", expire="at", after="7 minutes"),
    ],
)
def ending(clicks: DataFrame) -> dict[str, DataFrame]:
    timed = clicks.where("at is not null")
    return {"minutes": timed.withColumn("minute", tumble("at", "1 minute")), "raw": timed}


def click(log: MemoryLog, partition: int, minutes: float, *, late: float = 0) -> None:
    """Adds a click at `minutes`, whose own time is `late` minutes earlier."""
    now = BEGAN + minutes * MINUTE
    value = {"page": "a", "at": at_text(now - late * MINUTE), "ms": 1}
    log.add("clicks", partition, json.dumps(value).encode(), ms=int(now.timestamp() * 1000))


def test_a_partition_without_a_record_holds_expiry_back(
    spark: SparkSession, rehearse: Rehearse
) -> None:
    """The partition's first record may reach any row, so no row may have ended before."""
    log = memory_log()
    built = rehearse(ending, log)

    def seen_after(*clicks: tuple[int, float, float]) -> list[int]:
        for partition, minutes, late in clicks:
            click(log, partition, minutes, late=late)
        built.fold(log.end)
        return [row[1] for row in rows_seen(built, "minutes")]

    assert len(seen_after((0, 0, 0), (0, 60, 0))) == 2
    assert seen_after((1, 1, 1)) == [2, 1]
    assert seen_after((1, 30, 0)) == [1, 1]

    # Spark reads the same by the condition that `kappa tables` gives to readers of files.
    table, frontier = built.birth.table("minutes"), built.publisher.newest
    where = served_condition(table, log_clock(built.birth, frontier.log_time)) or ""
    paths = files(table_path(built.store, "b", "minutes"), frontier.versions["minutes"], None)
    stored = spark.read.parquet(*paths)
    assert (stored.count(), stored.where(where.replace('"', "`")).count()) == (3, 2)


def test_a_late_record_is_a_reject_as_it_was_in_the_log(rehearse: Rehearse) -> None:
    log = memory_log()
    for late in (0, 5, 8, 5.5):
        click(log, 0, 60, late=late)
    for driver_rows in (1_000, 0):
        built = rehearse(ending, log, driver_rows)
        built.fold(log.end)
        rejects = built.table("rejects").sort_by("offset").to_pylist()
        lies = "minute of table minutes lies {} ms before the log's time; rows are gone after"
        assert [(each["reason"], each["detail"]) for each in rejects] == [
            ("expired", f"{lies.format(ms)} 5 minutes") for ms in (480_000, 360_000)
        ]
        assert [each["value"] for each in rejects] == [record[5] for record in log.records[2:4]]


@pipeline(
    reads={"clicks": CLICKS},
    writes=[Table("raw", expire="at", after="7 minutes")],
    on_error="reject",
)
def failing(clicks: DataFrame) -> dict[str, DataFrame]:
    return {"raw": clicks.withColumn("page", clicks.page.cast("int"))}


@pytest.mark.long
@pytest.mark.parametrize("driver_rows", [1_000, 0])
def test_records_that_fail_and_those_that_are_too_late_are_all_rejects(
    rehearse: Rehearse, driver_rows: int
) -> None:
    log = memory_log()
    for page, late in (("1", 0), ("x", 0), ("2", 9), ("y", 9), ("3", 5)):
        at = at_text(BEGAN - late * MINUTE)
        value = json.dumps({"page": page, "at": at}).encode()
        log.add("clicks", 0, value, ms=int(BEGAN.timestamp() * 1000))
    built = rehearse(failing, log, driver_rows)
    built.fold(log.end)

    assert sorted(built.table("raw")["page"].to_pylist()) == [1, 3]
    rejects = built.table("rejects").sort_by("offset").select(["offset", "reason"]).to_pylist()
    assert {each["offset"]: each["reason"] for each in rejects} == {
        **dict.fromkeys((1, 3), "function_failed"),
        2: "expired",
    }


def test_a_record_that_the_topic_has_lost_is_a_reject_without_its_value() -> None:
    """The reject has no value, because an archive keeps raw records only of rejects."""
    from kappa.engine.children.rehearsal import MemoryLog
    from kappa.engine.function.expired_rows import EXPIRED_COLUMNS, refused_for

    class Lost(MemoryLog):
        def read_records(self, piece: Any) -> Any:
            if piece.start.at("clicks", 0) < 5_000:
                raise Broken("the log has lost it")
            return super().read_records(piece)

    log = Lost()
    for _ in range(6_000):
        log.add("clicks", 0, b"{}", key=b"k")
    table = TableBirth("raw", (("at", "timestamp"),), expiry=Expiry("at", 1_000))
    row = {"table": 0, "behind": 2_000_000, "_topic": "clicks", "_partition": 0}
    rows = pa.Table.from_pylist(
        [{**row, "_offset": each} for each in (5_999, 3, 5_999)],
        schema=arrow_schema(EXPIRED_COLUMNS),
    )

    (refused,) = refused_for(rows, [table], log).values()  # type: ignore[arg-type]  # a source in memory

    assert refused["_offset"].to_pylist() == [3, 5_999]
    assert refused["_raw_value"].to_pylist() == [None, b"{}"]
    assert set(refused["_detail"].to_pylist()) == {
        "at of table raw lies 2000 ms before the log's time; rows are gone after 1 second"
    }


def test_an_added_partition_that_takes_the_clock_back_stops_the_build(rehearse: Rehearse) -> None:
    log = memory_log()
    built = rehearse(ending, log)
    click(log, 0, 60)
    click(log, 1, 60)
    built.fold(log.end)
    click(log, 2, 61)
    built.fold(log.end)
    click(log, 3, 59)

    with pytest.raises(Broken, match="clicks partition 3 was added to the topic"):
        built.fold(log.end)


@pytest.mark.long
def test_the_law_of_slices_holds_for_rows_that_expire(spark: SparkSession) -> None:
    from kappa.testing import Event, law_of_slices

    draw, log = random.Random(5), []
    now = BEGAN
    for _ in range(24):
        now += timedelta(seconds=draw.randrange(80))
        at = now - draw.choice([0, 0, 1, 4, 7]) * MINUTE
        ms = int(now.timestamp() * 1000) + draw.choice([0, 0, -60_000])
        value = {"page": draw.choice("ab"), "at": at_text(at), "ms": 1}
        log.append(Event(value, partition=draw.randrange(2), timestamp_ms=ms))
    law_of_slices(ending, {"clicks": log}, cuts=2)
