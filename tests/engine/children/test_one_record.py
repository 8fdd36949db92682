"""The first page for contributors shows the real output of its program."""

from __future__ import annotations

import runpy

import pytest
from house import HOUSE

pytestmark = pytest.mark.jvm

EXPLAIN = HOUSE / "docs" / "explain"


@pytest.mark.usefixtures("spark")
def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXPLAIN / "one_record.py"), run_name="__main__")

    printed = capsys.readouterr().out
    page = (EXPLAIN / "one-record.md").read_text(encoding="utf-8")
    assert printed.startswith("kafka")
    assert f"```text\n{printed}```" in page
