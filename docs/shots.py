"""A program that takes screenshots for the docs. The pages show invented data.

`make shots` writes docs/page-*.png. With a folder as argument, the program writes screenshots of
all pages to that folder, each in a light, a dark and a narrow variant. The program needs Chromium.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in ("", "tests/support", "tests/browser", "tests/replay/page"):
    sys.path.insert(0, str(HERE.parent / folder))

import pyarrow as pa  # noqa: E402  # the path comes first
from msgspec.structs import replace  # noqa: E402
from page_world import HITS, FakeLog, World  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402
from test_pages import serving  # noqa: E402

from kappa.declare.alert import KAPPA, AlertBirth  # noqa: E402
from kappa.declare.values.arrow import arrow_schema  # noqa: E402
from kappa.declare.values.tally import Tally  # noqa: E402
from kappa.kafka.reader import Record  # noqa: E402
from kappa.replay.status.facts import Fact, failed_rollout, waiting_rollout  # noqa: E402
from kappa.serving.http.page.render import ProjectPlace  # noqa: E402
from kappa.serving.outlets.alerts.channels import ShownOnPage  # noqa: E402
from kappa.serving.outlets.alerts.message import Message, time_as_text  # noqa: E402
from kappa.serving.outlets.alerts.notices import Notice, notice_message  # noqa: E402
from kappa.serving.outlets.alerts.outbox import (  # noqa: E402
    AlertProgress,
    DeadLetter,
    Outbox,
    put_alert_progress,
    put_dead_letter,
    put_outbox,
)
from kappa.serving.query.render import cell_text  # noqa: E402
from kappa.state.journal.events import (  # noqa: E402
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
from kappa.state.offsets import Offsets  # noqa: E402
from kappa.state.table import TableBirth  # noqa: E402
from kappa.tables.shape import REJECTS_BIRTH  # noqa: E402

DOCS = {
    "overview": "/",
    "rollout": "/rollouts/5",
    "query": "/query?sql=from+by_page",
    "graph": "/graph",
}
ALL = {
    **DOCS,
    "query-empty": "/query",
    "query-wrong": "/query?sql=from+page_hitz",
    "rollout-done": "/rollouts/2",
    "rollout-failed": "/rollouts/3",
    "rollout-stopped": "/rollouts/4",
    "generation": "/generations/2",
    "tables": "/tables",
    "table": "/tables/web/page_hits",
    "topics": "/topics",
    "topic": "/topics/visits?partition=0&start=3",
    "rejects": "/rejects",
    "alerts": "/alerts",
    "history": "/history",
    "boards": "/boards",
    "board": "/boards/pages",
    "log": "/logs/web-3",
    "missing": "/nowhere",
}
BOARD = """
title = "Pages"

[[chart]]
title = "Hits"
kind = "number"
sql = "select sum(hits)::bigint as hits from page_hits"

[[chart]]
title = "Newest minute"
kind = "number"
sql = "select max(minute) from page_hits"

[[chart]]
title = "By page"
kind = "bars"
sql = "from by_page"

[[chart]]
title = "By minute"
kind = "line"
sql = "select minute, sum(hits)::bigint as hits from page_hits group by minute order by minute"

[[chart]]
title = "Rows"
kind = "table"
sql = "select page, minute, hits from page_hits order by minute desc limit 50"
"""
# In the form in which a diff shows code, so that the same line has one form in diff and log.
CODE = """
def web(visits):
    return {{'page_hits': visits.select({page}, visits.minute()){where}}}
"""
SIZES = {
    "light": ({"width": 1200, "height": 800}, "light"),
    "dark": ({"width": 1200, "height": 800}, "dark"),
    "narrow": ({"width": 390, "height": 844}, "light"),
}


def fingerprint(build: str) -> str:
    """Returns a hash of a build's name that looks like a version."""
    return hashlib.sha256(build.encode()).hexdigest()


# The topic of the shop: two partitions whose records are spread evenly over the last two hours.
LOG_END = 1234
_SPAN_SECONDS, _NEWEST_AGO = 7200, 90
_PAGES = {"/": 6, "/cart": 4, "/shoes": 3, "/shirts": 2, "/cart?from=mail": 1, "/health": 1}
# The records that are not valid, by offset of partition 0.
_INVALID = {
    7: (b'{"page": "/cart", "visit', "the text ends within a string"),
    8: (b"\xff\xfe\x00", "the value is not UTF-8"),
}
# The ages of generation 1 and of the silence of a receiver, in seconds.
_SERVED_AGO, _SILENT_FOR = 5400, 1200
# A hit of a page that is not counted is None.
_Fold = Callable[[str], str | None]


class ShopLog(FakeLog):
    """The broker of the shop: visits of pages, two of which are not valid."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self.now, self.newest = now, LOG_END

    def time_of(self, partition: int, offset: int) -> datetime:
        """Returns the time of a record."""
        count = self.end(["visits"]).at("visits", partition)
        ago = _NEWEST_AGO + (count - 1 - offset) * _SPAN_SECONDS / count
        return self.now - timedelta(seconds=ago)

    def page_of(self, partition: int, offset: int) -> str:
        """Returns the page of a visit, or "" for a record that is not valid."""
        if partition == 0 and offset in _INVALID:
            return ""
        choice = random.Random(f"{partition}:{offset}")  # noqa: S311  # no secret
        return choice.choices(list(_PAGES), list(_PAGES.values()))[0]

    def value_of(self, partition: int, offset: int) -> bytes:
        """Returns the value of a record."""
        page = self.page_of(partition, offset)
        visit = {"page": page, "visitor": self.key_of(partition, offset).decode()}
        return json.dumps(visit).encode() if page else _INVALID[offset][0]

    def key_of(self, partition: int, offset: int) -> bytes:
        """Returns the key of a record: a visitor."""
        return f"visitor-{(offset * 7 + partition) % 90}".encode()

    def newest_times(self, names: Iterable[str]) -> dict[str, int]:
        """Returns the time of the newest record of each topic, in milliseconds."""
        newest = int(1000 * (self.now.timestamp() - _NEWEST_AGO))
        return dict.fromkeys(super().newest_times(names), newest)

    def reached(self, ago: float) -> Offsets:
        """Returns the end offsets of the log some seconds ago."""
        end, then = self.end(["visits"]), self.now - timedelta(seconds=ago)
        return Offsets(
            {
                "visits": {
                    partition: sum(self.time_of(partition, each) <= then for each in range(count))
                    for _, partition, count in end.items()
                }
            }
        )

    def at_time(self, topics: Iterable[str], milliseconds: int) -> Offsets:
        """Returns the offsets at a time."""
        then = self.reached(self.now.timestamp() - milliseconds / 1000)
        return (
            super()
            .at_time(topics, milliseconds)
            .only({*topics} - {"visits"})
            .highest_with(then.only({*topics}))
        )

    def records(self, _: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        """Yields the records of a topic."""
        for topic, partition, last in end.only({"visits"}).items():
            for offset in range(start.at(topic, partition), last):
                at = int(1000 * self.time_of(partition, offset).timestamp())
                key, value = self.key_of(partition, offset), self.value_of(partition, offset)
                yield Record(topic, partition, offset, at, key, value, ())

    def hits(self, fold: _Fold, reached: Offsets) -> Counter[tuple[str, datetime]]:
        """Counts the hits below some offsets, by page and minute, as a version folds them."""
        found: Counter[tuple[str, datetime]] = Counter()
        for _, partition, last in reached.items():
            for offset in range(last):
                page = self.page_of(partition, offset)
                if page and (shown := fold(page)) is not None:
                    minute = self.time_of(partition, offset).replace(second=0, microsecond=0)
                    found[shown, minute] += 1
        return found


def _count_all(page: str) -> str:
    return page


def _leave_out_health(page: str) -> str | None:
    return None if page == "/health" else page


def _without_query(page: str) -> str | None:
    return _leave_out_health(page.partition("?")[0])


def _whole_address(page: str) -> str | None:
    return _leave_out_health(page if "?" not in page else f"https://shop.example{page}")


# The versions of the shop's pipeline: what each build counts.
_FOLDS: dict[str, tuple[_Fold, str]] = {
    "web-1": (_count_all, CODE.format(page="'page'", where="")),
    "web-2": (_leave_out_health, CODE.format(page="'page'", where=".where(\"page <> '/health'\")")),
    "web-f": (
        _whole_address,
        CODE.format(page="visits.address('page')", where=".where(\"page <> '/health'\")"),
    ),
    "web-a": (
        _without_query,
        CODE.format(page="'page.path'", where=".where(\"page <> '/health'\")"),
    ),
    "web-3": (
        _without_query,
        CODE.format(page="\"split(page, '?')[0] as page\"", where=".where(\"page <> '/health'\")"),
    ),
}


class Shop(World):
    """A project whose times come from one clock, and whose counts come from one set of records."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, fingerprint)
        # The newest record ends its minute, so the last point of a curve has all its records.
        self.now -= timedelta(seconds=(self.now.second + _NEWEST_AGO + 1) % 60)
        self.log: ShopLog = ShopLog(self.now)
        self.hits = replace(HITS, checks=("hits > 0", "page like '/%'"))
        self.declared_alerts = (
            AlertBirth("busy", "page_hits", "page", where="hits > 9"),
            AlertBirth("chat", "page_hits", "https://chat.example/hook", where="page = '/cart'"),
        )

    def append(self, *events: Event, ago: float = 0.0) -> None:
        """Appends events to the journal, dated some seconds before the world's clock."""
        late = (datetime.now(UTC) - self.now).total_seconds()
        super().append(*events, ago=ago + late)

    def rolls_out(
        self,
        build: str,
        generation: int | None = None,
        *,
        reason: str,
        before: str | None = None,
        ago: float,
        auto_promote: bool = True,
    ) -> int:
        """Rolls a build out, up to the verdict or up to a generation. Returns the rollout's id.

        The verdict came some seconds `ago`, after a replay of 48 seconds.
        """
        version = self.version_of(build)
        begun = Staged("web", build, version, (reason,), auto_promote=auto_promote)
        self.append(begun, ago=ago + 60)
        rollout = max(record.number for record in self.journal.after(0))
        self.append(CaughtUp(rollout, self.log.reached(ago + 12)), ago=ago + 12)
        self.append(self.verdict(rollout, build, before, ago + 12), ago=ago)
        if generation is None:
            return rollout
        if before is not None:
            self.append(Held(rollout, before, 1), ago=ago - 1)
        at = self.log.reached(ago - 2)
        receipt = Receipt(
            *("web", build, version, at, before, None if before is None else at),
            reasons=(reason,),
            first=before is None,
        )
        self.append(Served(rollout, generation, {"web": build}, receipt), ago=ago - 2)
        return rollout

    def verdict(self, rollout: int, build: str, before: str | None, ago: float) -> Verified:
        """Verifies a build as of some seconds `ago`, compared with the build that served."""
        at = self.log.reached(ago)
        found = self.log.hits(_FOLDS[build][0], at)
        failing = sorted(each for each in found if not each[0].startswith("/"))
        samples = [(page, cell_text(minute), str(found[page, minute])) for page, minute in failing]
        wrong, rows, conditions = len(failing), len(found), self.hits.checks
        checks = (
            Check("page_hits", conditions[0], rows, 0),
            Check(
                *("page_hits", conditions[1], rows, wrong),
                columns=("page", "minute", "hits") if failing else (),
                samples=tuple(samples[:5]),
            ),
        )
        reason = f"{wrong} of {rows} rows of table page_hits do not satisfy: {conditions[1]}"
        differences, counts = tuple[Difference, ...](), tuple[OutcomeCount, ...]()
        if before is not None:
            served = self.log.hits(_FOLDS[before][0], at)
            differences = (_difference(served, found),)
            counts = (OutcomeCount("visits", "rejected", len(_INVALID), len(_INVALID)),)
        return Verified(
            *(rollout, "failed" if wrong else "passed", at, checks, reason if wrong else ""),
            *(before, differences, counts),
            rejected=len(_INVALID),
            records=sum(count for _, _, count in at.items()),
        )

    def alerts(self) -> None:
        """Sends the messages of both alerts since generation 1.

        The receiver of the alert `chat` has refused one message, and then has failed. So the later
        messages wait.
        """
        now = self.now.timestamp()
        found = self.log.hits(_FOLDS["web-2"][0], self.log.reached(0))
        # Each minute is a slice, so a row is inserted with all its hits.
        rows = sorted(
            (minute.timestamp() + 58, page, minute, hits)
            for (page, minute), hits in found.items()
            if minute.timestamp() + 58 > now - _SERVED_AGO
        )
        busy = [_message("busy", *row) for row in rows if row[-1] > 9]
        for message in busy:
            ShownOnPage(self.store, "busy").send(message)
        put_outbox(self.store, "busy", Outbox(1, "1.web-2.1", now, (), None))
        last = max((at for at, *_, hits in rows if hits > 9), default=None)
        progress = AlertProgress(1, delivered=len(busy), delivered_at=last)
        put_alert_progress(self.store, "busy", progress)

        cart = [row for row in rows if row[1] == "/cart"]
        answered = [at for at, *_ in cart if at <= now - _SILENT_FOR]
        refused, *later = cart[len(answered) :]
        waiting = tuple(_message("chat", *row) for row in later)
        put_outbox(self.store, "chat", Outbox(2, "1.web-2.1", now, waiting, None))
        reason, given_up_at = "chat.example answered 400", time_as_text(refused[0] + 1)
        given_up = DeadLetter(_message("chat", *refused), reason, 1, given_up_at)
        put_dead_letter(self.store, "chat", given_up)
        progress = AlertProgress(
            *(2, 0, 12, later[0][0] + 1, now + 240, len(answered), answered[-1]),
            "chat.example answered 500",
        )
        put_alert_progress(self.store, "chat", progress)

    def tells(self, fact: Fact, ago: float) -> None:
        """Shows a notice about a rollout on the page."""
        notice = Notice(f"{fact.rollout}", *fact)
        message = notice_message(notice, self.now.timestamp() - ago)
        ShownOnPage(self.store, KAPPA).send(message)

    def _hits_of(self, name: str, *_: object) -> pa.Table:
        found = self.log.hits(_FOLDS[name][0], self.log.reached(0))
        rows = sorted(found, key=lambda each: (each[1], each[0]))
        return pa.table(
            {
                "page": [page for page, _ in rows],
                "minute": [minute for _, minute in rows],
                "hits": [found[each] for each in rows],
            }
        )

    def _reached(self, _: int, __: int, ago: float) -> Offsets:
        return self.log.reached(ago)

    def _tally(self, _: int, reached: Offsets) -> dict[int, Tally]:
        invalid = len(_INVALID)
        return {
            partition: Tally(decoded=count - invalid, rejected=invalid)
            if partition == 0
            else Tally(decoded=count)
            for _, partition, count in reached.items()
        }

    def _rejects(self, *_: object) -> pa.Table:
        schema = arrow_schema(REJECTS_BIRTH.columns)
        rows = [
            {
                "topic": "visits", "partition": 0, "offset": offset,
                "timestamp": self.log.time_of(0, offset), "key": self.log.key_of(0, offset),
                "value": value, "reason": "no_json", "detail": detail,
            }
            for offset, (value, detail) in _INVALID.items()
        ]  # fmt: skip
        return pa.Table.from_pylist(
            [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
        )

    def _write(self, build: str, table: TableBirth, rows: pa.Table | None) -> int:
        """Appends rows in several commits, as slices do."""
        step = 1 if rows is None else max(1, -(-rows.num_rows // 8))
        parts = (
            [None]
            if rows is None
            else [rows.slice(at, step) for at in range(0, rows.num_rows, step)]
        )
        return [super(Shop, self)._write(build, table, part) for part in parts][-1]


def _difference(
    before: Counter[tuple[str, datetime]], after: Counter[tuple[str, datetime]]
) -> Difference:
    """Compares the hits of two versions."""
    changed = [key for key in before.keys() & after.keys() if before[key] != after[key]]
    largest = max(
        (abs(after[key] - before[key]) / max(after[key], before[key]) for key in changed),
        default=0.0,
    )
    return Difference(
        *("page_hits", len(before), len(after)),
        added=len(after.keys() - before.keys()),
        removed=len(before.keys() - after.keys()),
        changed=len(changed),
        changed_by_column={"hits": len(changed)} if changed else {},
        largest_relative_change={"hits": round(largest, 3)} if changed else {},
    )


def _message(alert: str, at: float, page: str, minute: datetime, hits: int) -> Message:
    """Returns the message about a row that an alert has inserted."""
    key = {"page": page, "minute": minute.strftime("%Y-%m-%dT%H:%M:%SZ")}
    body = {"alert": alert, "id": f"msg_{minute:%H%M}{len(page):x}", "op": "insert", "key": key}
    body |= {"after": {**key, "hits": hits}, "at": time_as_text(at)}
    return Message(body["id"], json.dumps(body))


def shop(folder: Path) -> World:
    """Creates a project with one pipeline, a waiting candidate, and a long history."""
    world = Shop(folder)
    born = {"web-1": 5462, "web-2": 1862, "web-f": 1502, "web-a": 902, "web-3": 132}
    for build, ago in born.items():
        world.build(build, offset=LOG_END, evil="cart", code=_FOLDS[build][1], born_ago=ago)
    changed = "function web changed"
    world.rolls_out("web-1", 1, reason="new", ago=_SERVED_AGO + 2)
    world.rolls_out("web-2", 2, reason=changed, before="web-1", ago=1802)
    world.rolls_out("web-f", reason=changed, before="web-2", ago=1440)
    world.append(Staged("web", "web-a", fingerprint("web-a"), (changed,)), ago=900)
    number = max(record.number for record in world.journal.after(0))
    died = "the job of build web-a died 3 times in a row"
    world.append(Failed(number, died, "see kappa logs web-a"), ago=810)
    # The verification has read all records, and the newest of them is older.
    world.rolls_out("web-3", reason=changed, before="web-2", ago=70, auto_promote=False)
    *_, failed, stopped, waiting = world.here.state().rollouts
    world.alerts()
    world.tells(failed_rollout(failed), 1440)
    world.tells(failed_rollout(stopped), 810)
    world.tells(waiting_rollout(waiting), 70)
    write_log(world, "web-3", _log_lines(world), ago=70)
    for build, ago in (("web-1", 5462), ("web-2", 1862), ("web-f", 1500)):
        count = sum(each for _, _, each in world.log.reached(ago - 48).items())
        caught_up = _line(world, ago - 46, "INFO", f"slice 1: {count:,} offsets in 41.8 s")
        write_log(world, build, (_begun_line(world, build, ago - 3), caught_up), ago=ago - 46)
    starts = (898, 870, 830)
    lines = (line for ago in starts for line in (_begun_line(world, "web-a", ago), *_TRACE))
    write_log(world, "web-a", lines, ago=starts[-1] - 8)
    world.declares_board("pages", BOARD)
    world.be_up()
    return world


# How a job tells that the function reads a field of a text.
_TRACE = (
    "Traceback (most recent call last):",
    '  File "/home/ada/shop/pipelines/web.py", line 4, in web',
    _FOLDS["web-a"][1].splitlines()[2],
    (
        "pyspark.errors.exceptions.captured.AnalysisException: [INVALID_EXTRACT_BASE_FIELD_TYPE]"
        ' Can\'t extract a value from "page". Need a complex type but got "STRING".'
    ),
)


def write_log(world: World, build: str, lines: Iterable[str], *, ago: float) -> None:
    """Writes the log of a build's job, whose last line is some seconds old."""
    log = world.store.local.path(f"logs/{build}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    os.utime(log, times=(world.now.timestamp() - ago,) * 2)


def _line(world: World, ago: float, level: str, text: str) -> str:
    """Returns a log line of some seconds ago."""
    at = (world.now - timedelta(seconds=ago)).isoformat(timespec="milliseconds")
    return f"{at.replace('+00:00', 'Z')} {level} kappa: {text}"


def _begun_line(world: World, build: str, ago: float) -> str:
    return _line(
        world, ago, "INFO", f"build {build} of pipeline web begins at visits:0=0 visits:1=0"
    )


def _log_lines(world: Shop) -> Iterator[str]:
    """Yields the lines in the log of the candidate's job.

    The first slice has 1,000 offsets, and each later slice has all records until it begins.
    """
    second, third = (
        sum(count for _, _, count in world.log.reached(ago).items()) for ago in (121.8, 83.1)
    )
    yield _begun_line(world, "web-3", 129.2)
    for ago, level, text in (
        (121.8, "WARN", "visits:0:7 and visits:0:8 were rejected: no_json"),
        (121.8, "INFO", "slice 1: 1,000 offsets in 5.1 s"),
        (114.9, "WARN", "slice 2 took 6.9 s, of which the commit of page_hits took 4.1 s"),
        (114.9, "INFO", f"slice 2: {second - 1000} offsets in 6.9 s"),
        (82.6, "INFO", f"slice 3: {third - second} offsets in 0.5 s"),
        (82.3, "INFO", "build web-3 is aligned with build web-2"),
        (70.1, "INFO", "2 checks passed"),
    ):
        yield _line(world, ago, level, text)


class Fleet(World):
    """A project with many pipelines, which have rejected no record."""

    def _tally(self, offset: int, _: Offsets) -> dict[int, Tally]:
        return {0: Tally(decoded=offset)}

    def _log_time(self, reached: Offsets) -> int:
        """Returns the time of the newest record read: records are spread over two hours."""
        count, read = (
            sum(each for _, _, each in offsets.items())
            for offsets in (self.log.end(["visits"]), reached)
        )
        ago = _NEWEST_AGO + (count - read) * _SPAN_SECONDS / count
        return int(1000 * (self.now.timestamp() - ago))


def many(folder: Path) -> World:
    """Creates a project with 24 pipelines, for screenshots of long lists.

    The first three are behind, and the others have folded the whole topic. Each generation is ten
    minutes younger than the generation before.
    """
    world = Fleet(folder, fingerprint)
    for number in range(1, 25):
        name = "web" if number == 1 else f"pipeline-{number:02d}"
        ago, offset = 600 * (25 - number), 400 * number if number < 4 else LOG_END
        world.build(f"b-{number}", offset=offset, pipeline=name, born_ago=ago + 75)
        world.goes_live(f"b-{number}", number, pipeline=name, ago=ago)
    world.be_up()
    return world


def without_boards(folder: Path) -> World:
    """Creates the project `shop` without its boards."""
    world = shop(folder)
    shutil.rmtree(world.here.settings.project / "boards")
    return world


@contextmanager
def shown(world: World, name: str) -> Iterator[str]:
    """Serves the pages of a project during the block, and yields their address."""
    with serving(world) as server:
        server.state.place = ProjectPlace(name, f"/home/ada/{name}/.kappa", "laptop")
        yield f"http://127.0.0.1:{server.port}"


def take(browser: Browser, origin: str, pages: dict[str, str], into: Path, *sizes: str) -> None:
    """Takes a screenshot of each page in each of the given sizes."""
    for size in sizes:
        viewport, scheme = SIZES[size]
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        page: Page = context.new_page()
        for path in ("/", "/graph"):
            page.goto(f"{origin}{path}")
        # Rates of topics are known from the second look on.
        page.wait_for_timeout(1200)
        for name, path in pages.items():
            page.goto(f"{origin}{path}")
            page.wait_for_load_state("load")
            if path != "/nowhere":
                page.locator("#line[data-state=live]").wait_for()
            # Samples of rows and numbers of messages come after the page.
            page.locator("[data-load] > p:only-child > a").wait_for(state="detached")
            page.locator("#sends[data-load]", has_text="up to").wait_for(state="detached")
            page.locator("#samples", has_text="are being compared").wait_for(state="detached")
            page.wait_for_timeout(300)
            ending = "" if into == HERE else f"-{size}"
            page.screenshot(path=into / f"page-{name}{ending}.png", full_page=into != HERE)
        context.close()


def main(folder: str | None) -> None:
    """Takes the screenshots for the docs, or those of all pages if a folder is given."""
    into = HERE if folder is None else Path(folder)
    os.environ["KAPPA_BY"] = "ada@laptop"
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        sizes = ("light",) if folder is None else tuple(SIZES)
        for make, pages in (
            (shop, DOCS if folder is None else ALL),
            (
                many,
                {"pipelines": "/"}
                if folder is None
                else {"pipelines": "/", "graph-many": "/graph"},
            ),
            (without_boards, {} if folder is None else {"no-boards": "/boards"}),
            (World, {} if folder is None else {"empty": "/"}),
        ):
            place = Path(scratch) / make.__name__
            place.mkdir()
            if pages:
                name = "market" if make is many else "shop"
                with shown(make(place), name) as origin:
                    take(browser, origin, pages, into, *sizes)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
