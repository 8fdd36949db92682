"""One Chromium for all tests in a browser. Without it, the tests are skipped with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Without the browser's driver all other tests still run; `make test-browser` finds none, and fails.
# The deploy that is watched is real, on the support of the end-to-end tests.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yields a browser for one file, because Playwright's thread can run no other event loop."""
    from browsing import CHROMIUM
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        pytest.skip("not run: no chromium")
    # `expect` does not use a context's timeout. Its own is five seconds, too short for a busy
    # machine.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        # As root Chromium starts only without its own sandbox; all pages here are ours.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
