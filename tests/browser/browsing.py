"""A real browser for the page: headless Chromium, which records everything that must not happen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
CHROMIUM = shutil.which("chromium")
# The folder for pictures of the pages, if any.
PICTURES = os.environ.get("KAPPA_PICTURES")
WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 360, "height": 740}
# How much the page jumps while data stream in, as browsers weigh it (https://web.dev/articles/cls).
# Below 0.1 is called good.
SHIFTS = (
    "globalThis.shifted = 0; new PerformanceObserver((list) => "
    "{ for (const each of list.getEntries()) "
    "if (!each.hadRecentInput) globalThis.shifted += each.value; })"
    ".observe({ type: 'layout-shift', buffered: true });"
)


class Seen:
    """The messages and requests of a page.

    `complaints` are script errors, policy violations, and dialogs that a stranger's script would
    open.
    """

    def __init__(self, page: Page, origin: str) -> None:
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self._origin = origin
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self._origin):
            self.elsewhere.append(request.url)


@contextmanager
def opened(
    chromium: Browser, origin: str, *, axe: bool = False, **options: Any
) -> Iterator[tuple[Page, Seen]]:
    """Opens a separate browser at a server; yields its page, and its record.

    Asserts at the end that the page has no complaints, and sent no request to other servers.
    """
    context: BrowserContext = chromium.new_context(
        base_url=origin, viewport=options.pop("viewport", WIDE), **options
    )
    context.set_default_timeout(20_000)
    context.add_init_script(SHIFTS)
    if axe:
        # Not as a script of the page's, which its policy would refuse.
        context.add_init_script(path=AXE)
    page = context.new_page()
    seen = Seen(page, origin)
    try:
        yield page, seen
        assert seen.complaints == [], seen.complaints
        assert seen.elsewhere == []
    finally:
        context.close()


def ensure_accessible(page: Page) -> None:
    """Asserts that axe-core finds nothing serious or critical."""
    found = page.evaluate(
        "async () => (await axe.run()).violations.map(({ id, impact, nodes }) => "
        "({ id, impact, where: nodes.map((each) => each.html.slice(0, 160)) }))"
    )
    assert [each for each in found if each["impact"] in {"serious", "critical"}] == []


def ensure_fits(page: Page) -> None:
    """Asserts that the page is no wider than its window."""
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        == 0
    )


def ensure_good(page: Page, name: str) -> None:
    """Asserts that the page is accessible in light and dark, and fits wide and narrow windows.

    Takes pictures of all three, with `name` in their file names.
    """
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ensure_accessible(page)
        ensure_fits(page)
        picture(page, f"{name} {scheme}")
    page.set_viewport_size(NARROW)
    ensure_fits(page)
    picture(page, f"{name} narrow")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)


def picture(page: Page, name: str) -> None:
    """Takes a picture if pictures are requested."""
    if PICTURES:
        page.screenshot(
            path=Path(PICTURES) / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower()).strip('-')}.png",
            full_page=True,
        )
