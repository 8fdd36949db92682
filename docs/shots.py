"""A program that takes screenshots for the docs. The pages show invented data.

`make shots` writes docs/page-*.png. With a folder as argument, the program writes screenshots of
all pages to that folder, each in a light, a dark and a narrow variant. The program needs Chromium.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in ("", "tests/support", "tests/browser", "tests/replay/page"):
    sys.path.insert(0, str(HERE.parent / folder))

from page_world import ROWS, World  # noqa: E402  # the path comes first
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402
from test_pages import BOARD, serving  # noqa: E402

from kappa.serving.http.page.render import ProjectPlace  # noqa: E402
from kappa.state.journal.events import Failed, Staged  # noqa: E402

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
CODE = """
def web(slice):
    hits = slice["visits"]
    return {{"page_hits": hits.select("page", "minute"{more})}}
"""
# The end of the log of `page_world`, of which partition 1 has half.
LOG_END = 1234
SIZES = {
    "light": ({"width": 1200, "height": 800}, "light"),
    "dark": ({"width": 1200, "height": 800}, "dark"),
    "narrow": ({"width": 390, "height": 844}, "light"),
}


def fingerprint(build: str) -> str:
    """Returns a hash of a build's name that looks like a version."""
    return hashlib.sha256(build.encode()).hexdigest()


def shop(folder: Path) -> World:
    """Creates a project with one pipeline, a waiting candidate, and a long history."""
    world = World(folder, fingerprint)
    world.build("web-1", evil="cart", code=CODE.format(more=""))
    world.build("web-2", offset=LOG_END, evil="cart", code=CODE.format(more=""))
    changed = CODE.format(more=', "visitors"')
    world.build("web-3", offset=LOG_END, hits=2, rows=ROWS + 2, evil="cart", code=changed)
    world.goes_live("web-1", 1, ago=5400)
    world.goes_live("web-2", 2, "web-1", reasons=("table page_hits changed",), ago=1800)
    world.append(Staged("web", "web-f", fingerprint("web-f"), ("function web changed",)), ago=1500)
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, f"check failed: {ROWS} of {ROWS} rows", "mend it"), ago=1400)
    world.append(Staged("web", "web-a", fingerprint("web-a"), ("function web changed",)), ago=900)
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, "its job died", "kappa logs web-a"), ago=800)
    world.alerts()
    world.notices()
    world.waits("web-3", "web-2", reason="function web changed", ago=95)
    log = world.store.local.path("logs/web-3.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("09:12:01 folds from visits:0=0\n09:12:07 WARN slice 3 was slow: 4.1 s\n")
    world.declares_board("pages", BOARD)
    world.be_up()
    return world


def many(folder: Path) -> World:
    """Creates a project with 24 pipelines, for screenshots of long lists."""
    world = World(folder, fingerprint)
    for number in range(1, 25):
        name = "web" if number == 1 else f"pipeline-{number:02d}"
        world.build(f"b-{number}", offset=400 * number, pipeline=name)
        world.goes_live(f"b-{number}", number, pipeline=name, ago=600 * number)
    world.be_up()
    return world


@contextmanager
def shown(world: World) -> Iterator[str]:
    """Serves the pages of a project during the block, and yields their address."""
    with serving(world) as server:
        server.state.place = ProjectPlace("shop", "/home/ada/shop/.kappa", "canary")
        yield f"http://127.0.0.1:{server.port}"


def take(browser: Browser, origin: str, pages: dict[str, str], into: Path, *sizes: str) -> None:
    """Takes a screenshot of each page in each of the given sizes."""
    for size in sizes:
        viewport, scheme = SIZES[size]
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        page: Page = context.new_page()
        for name, path in pages.items():
            page.goto(f"{origin}{path}")
            page.wait_for_load_state("load")
            if path != "/nowhere":
                page.locator("#line[data-state=live]").wait_for()
            # Samples of rows come after the page.
            page.locator("[data-load] > p:only-child > a").wait_for(state="detached")
            page.wait_for_timeout(300)
            ending = "" if into == HERE else f"-{size}"
            page.screenshot(path=into / f"page-{name}{ending}.png", full_page=into != HERE)
        context.close()


def main(folder: str | None) -> None:
    """Takes the screenshots for the docs, or those of all pages if a folder is given."""
    into = HERE if folder is None else Path(folder)
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
            (World, {} if folder is None else {"empty": "/", "no-boards": "/boards"}),
        ):
            place = Path(scratch) / make.__name__
            place.mkdir()
            if pages:
                with shown(make(place)) as origin:
                    take(browser, origin, pages, into, *sizes)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
