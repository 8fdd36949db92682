"""One Chromium for all tests in a browser; where there is none, they say so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM
from playwright.sync_api import Browser, sync_playwright

# The deploy that is watched is a real one, on what the end-to-end tests stand on.
sys.path.append(str(Path(__file__).parents[1] / "e2e"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("not run: no chromium")
    with sync_playwright() as playwright:
        # As root Chromium starts without its own sandbox only; what it is shown here is ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
