"""The entry of a table has all fields that docs/howto/read-the-files.md lists.

The snippets of that page are those of `kappa attach` (tests/commands/test_attach.py).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.serving.query.render import to_json
from kappa.serving.query.tables import served_tables, tables_listing
from kappa.state.store import Store

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "read-the-files.md"


def entries(platform: Platform) -> list[dict[str, Any]]:
    """Returns the entries that `kappa tables -o json` prints."""
    found: list[dict[str, Any]] = json.loads(
        to_json(tables_listing(served_tables(platform.store)).row_objects())
    )
    return found


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    return platform


def test_the_entry_of_a_table_has_what_the_page_lists(platform: Platform) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    planes = next(each for each in entries(platform) if each["table"] == "planes")
    assert json.loads(example).keys() <= planes.keys()
    assert planes["where"] == json.loads(example)["where"]
