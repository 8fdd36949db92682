"""One Chromium for all tests in a browser; where there is none, they say so."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The deploy that is watched is a real one, on what the end-to-end tests stand on.
# In a venv without what drives the browser all other tests run still; `make test-browser` finds none then, and fails.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from browsing import CHROMIUM
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        pytest.skip("not run: no chromium")
    # What a context has by default does not hold for `expect`: five seconds, on a machine that may have other things to do.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        # As root Chromium starts without its own sandbox only; what it is shown here is ours.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
