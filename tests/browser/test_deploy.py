"""A whole deploy in a real browser, with a real broker and a real supervisor.

The deploy is watched, promoted and undone by clicks.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
from browsing import NARROW, WIDE, ensure_accessible, ensure_fits, opened, picture
from playwright.sync_api import Browser, Page, expect
from testbed import TREE, Testbed, platform

from demo.producer.events import Event, first_events
from kappa.kafka.producer import ProducedRecord
from kappa.replay.status.run_records import served_at

pytestmark = [pytest.mark.browser, pytest.mark.jvm, pytest.mark.long]

# As the tree has it, but for the view that the board shows: here it is a maintained one.
VIEW = 'from delays left join airlines using (carrier) group by all\n            """,'
TEXT = (TREE / "pipelines" / "flights.py").read_text(encoding="utf-8")
V1 = TEXT.replace(VIEW, f'{VIEW}\n            keys=("carrier",),')
assert 'keys=("carrier",)' in V1
BOARD = TREE / "boards" / "flights.toml"
V2 = V1.replace("LATE_MINUTES = 15", "LATE_MINUTES = 30")
FLIGHTS = 30_000
# Events that arrive while the page is watched; a few of them are a stranger's.
LATER = 20_000
EVIL = b"<script>document.title = 'taken'</script>"
# A replay of a few thousand records, on a machine that has other things to do.
PATIENCE_MS = 180_000


def produce(bed: Testbed, events: Iterable[Event]) -> None:
    for topic, of_topic in groupby(events, key=lambda each: each.topic):
        placed = ((each.key.encode(), each.timestamp_ms, each) for each in of_topic)
        records = (
            ProducedRecord(each.value, key, at, partition=each.partition)
            for key, at, each in placed
        )
        bed.log.produce(records, topic)


@contextmanager
def flights_departing(bed: Testbed, events: list[Event]) -> Iterator[None]:
    """Produces flights, some sixty a second, and sometimes an invalid record."""
    stop = threading.Event()

    def depart() -> None:
        for start in range(0, len(events), 60):
            if stop.wait(1.0):
                return
            produce(bed, events[start : start + 60])
            if start % 600 == 0:
                bed.log.produce([ProducedRecord(b'{"id": "' + EVIL, EVIL)], "flights")

    thread = threading.Thread(target=depart)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def agree(page: Page, button: str, *, told: str) -> None:
    """Clicks a button, checks the plan in the dialog, and confirms it."""
    page.get_by_role("button", name=button).first.click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(told))
    page.locator("#plan-yes:not([disabled])").click()


# Six of its looks have that patience each.
@pytest.mark.timeout(1200)
def test_deploy_is_promoted_by_clicking(chromium: Browser, tmp_path: Path, lent: str) -> None:
    """The deploy is also watched and undone by clicks."""
    events = list(first_events(FLIGHTS + LATER))
    first, later = events[:-LATER], events[-LATER:]
    with platform(tmp_path / "airport", lent, listen="127.0.0.1:0", flights=V1) as bed:
        bed.wait(lambda: served_at(bed.store) is not None, "the HTTP server")
        url = served_at(bed.store)
        assert url is not None
        produce(bed, first)
        (bed.folder / "boards").mkdir()
        shutil.copy(BOARD, bed.folder / "boards")
        with opened(chromium, url, axe=True) as (page, _), flights_departing(bed, later):
            page.goto("/")
            expect(page.locator("main")).to_contain_text("kappa deploy")
            bed.must("deploy", "--yes")
            chip, follows = page.locator("#pipe-flights .chip"), re.compile("Up to date|Following")
            expect(chip).to_have_text(follows, timeout=PATIENCE_MS)
            look_at_the_board(page)
            bed.declare("flights", V2)
            bed.must("stage", "--yes")
            watch_until_ready(page)
            promote_and_undo(page, bed)
            look_around(page)


def look_at_the_board(page: Page) -> None:
    """Asserts that every chart of the demo's board is drawn, and follows the departing flights."""
    page.get_by_role("link", name="Boards").click()
    page.get_by_role("link", name="Departures from New York", exact=True).click()
    expect(page.locator("#chart-5 canvas")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".tile")).to_have_count(7)
    expect(page.locator(".tile .notice")).to_have_count(0)
    reads = json.loads(page.locator("#board").get_attribute("data-reads") or "[]")
    assert ["flights", "carriers"] in reads
    flights = page.locator("#chart-1 .figure")
    delays = page.locator("#chart-6 .bars")
    before = flights.inner_text(), delays.inner_text()
    expect(flights).not_to_have_text(before[0], timeout=PATIENCE_MS)
    expect(delays).not_to_have_text(before[1], timeout=PATIENCE_MS)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        ensure_accessible(page)
        picture(page, f"deploy board {scheme}")
    for size, name in (({"width": 1920, "height": 1080}, "on a wall"), (NARROW, "narrow")):
        page.set_viewport_size(size)
        page.goto("/boards/flights?kiosk=1")
        expect(page.locator("#chart-5 canvas")).to_be_visible()
        ensure_fits(page)
        picture(page, f"deploy board {name}")
    page.set_viewport_size(WIDE)
    page.goto("/")


def watch_until_ready(page: Page) -> None:
    # It came by itself: nobody has reloaded the page.
    page.get_by_role("link", name=re.compile("Follow the rollout|Review and promote")).click()
    expect(page.locator(".stages [aria-current]")).to_contain_text(re.compile("Replay|Verify|yes"))
    expect(page.locator("#rollout progress").first).to_be_visible()
    picture(page, "deploy replaying")
    expect(page.locator(".stages [aria-current]")).to_contain_text("Approval", timeout=PATIENCE_MS)
    expect(page.locator("#verified")).to_have_text("Verification: passed")
    expect(page.locator("#rollout")).to_contain_text("on_time")
    expect(page.locator("#samples ins").first).to_be_visible(timeout=PATIENCE_MS)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        ensure_accessible(page)
        picture(page, f"deploy ready {scheme}")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#moving-flights .chip")).to_have_text("Waiting for approval")
    expect(page.locator("#pipe-flights canvas")).to_be_visible()
    picture(page, "deploy overview")


def promote_and_undo(page: Page, bed: Testbed) -> None:
    live = bed.live("flights")
    page.get_by_role("link", name="Review and promote").click()
    agree(page, "Promote", told=f"will serve instead of {live}")
    expect(page.locator("#rollout")).to_contain_text("as generation 2", timeout=PATIENCE_MS)
    assert bed.live("flights") != live

    agree(page, "Undo", told=f"Build {live} .* will serve instead")
    expect(page.locator("h1")).to_contain_text(re.compile("(goes|went) back to"))
    expect(page.locator("#rollout")).to_contain_text("as generation 3", timeout=PATIENCE_MS)
    assert bed.live("flights") == live


def look_around(page: Page) -> None:
    page.get_by_role("link", name="History").first.click()
    expect(page.locator(".timeline li").first).to_contain_text("Serving")
    picture(page, "deploy history")
    page.get_by_role("link", name="Generation 2").click()
    expect(page.get_by_role("region", name="Tables", exact=True)).to_contain_text("delays")

    page.goto("/query")
    page.locator("#query").fill(
        "select day, sum(flights)::bigint as flights, sum(on_time)::bigint as on_time\n"
        "from delays\ngroup by day\norder by day"
    )
    page.locator("#query").press("Control+Enter")
    expect(page.locator("#answer .chart canvas")).to_be_visible()
    picture(page, "deploy query")
    page.goto("/rejects")
    expect(page.locator("#rejects")).to_contain_text("<script>", timeout=PATIENCE_MS)
    expect(page).to_have_title(re.compile("^Rejects · .+ · Kappa$"))
    picture(page, "deploy rejects")
    for path in ("/topics/flights", "/tables/flights/carriers", "/"):
        page.goto(path)
        ensure_accessible(page)
    page.set_viewport_size(NARROW)
    ensure_fits(page)
    picture(page, "deploy narrow")
