"""The site of the docs in a browser: searched, in light and dark, without foreign requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from browsing import opened
from generated import imported
from house import HOUSE
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("zensical") is None:
        pytest.skip("not run: no zensical, which `make site` installs")
    folder = tmp_path_factory.mktemp("site")
    maker = imported("site_maker", HOUSE / "docs" / "site.py")
    assert maker.build_site(folder, diagrams=False) == []
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def first_found(page: Page, heading: str) -> Locator:
    """Searches by keyboard, and returns the first result, which must have this heading.

    Text that is typed before the field has the focus would be lost.
    """
    page.keyboard.press("/")
    field = page.get_by_role("combobox")
    expect(field).to_be_focused()
    field.press_sequentially(heading.lower())
    first = page.get_by_role("option").first
    expect(first.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    return first


def test_a_word_is_found_from_any_page(chromium: Browser, address: str) -> None:
    """`opened` asserts that no other host gets a request, and that nothing complains."""
    with opened(chromium, address) as (page, _):
        page.goto("/howto/undo.html")
        first_found(page, "Frontier").click()
        page.wait_for_url("**/reference/glossary.html**")
        expect(page.locator("#frontier")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_in_light_and_dark(
    chromium: Browser, address: str, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 800}
    with opened(chromium, address, color_scheme=scheme, viewport=size) as (page, _):
        for path in ("index", "start/coming-from", "reference/glossary", "howto/shell"):
            page.goto(f"/{path}.html")
            # What the theme keeps outside of the window cannot be scrolled to.
            assert page.evaluate("window.scrollTo(500, 0), window.scrollX") == 0
            dark = page.evaluate("document.body.getAttribute('data-md-color-scheme')")
            assert dark == ("slate" if scheme == "dark" else "default")


def test_the_search_works_without_a_server(chromium: Browser, site: Path) -> None:
    with opened(chromium, site.as_uri()) as (page, _):
        page.goto(f"{site.as_uri()}/index.html")
        first_found(page, "Frontier")
