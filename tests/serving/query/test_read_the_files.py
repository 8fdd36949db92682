"""The snippets of docs/howto/read-the-files.md give the rows that `kappa query` answers."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.serving.query.render import to_json
from kappa.serving.query.tables import served_tables, tables_listing
from kappa.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "read-the-files.md"


def snippet(heading: str) -> str:
    (found,) = re.findall(
        rf"^## {heading}\n+```python\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return str(found)


def entries(platform: Platform) -> list[dict[str, Any]]:
    """Returns the entries that `kappa tables -o json` prints."""
    found: list[dict[str, Any]] = json.loads(
        to_json(tables_listing(served_tables(platform.store)).row_objects())
    )
    return found


def served(platform: Platform, name: str) -> list[str]:
    return sorted(map(str, platform.ask(f"from flights.{name}").rows))


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


def test_duckdb_reads_what_is_served(platform: Platform) -> None:
    for table in entries(platform):
        names: dict[str, Any] = {
            "table": table,
            "columns": [column["name"] for column in table["columns"]],
        }
        exec(snippet("DuckDB"), names)  # the page's own lines
        assert sorted(map(str, names["rows"].fetchall())) == served(platform, table["table"])


@pytest.mark.skipif(importlib.util.find_spec("polars") is None, reason="it is not required")
def test_polars_reads_what_is_served(platform: Platform) -> None:
    for table in entries(platform):
        names: dict[str, Any] = {
            "table": table,
            "columns": [column["name"] for column in table["columns"]],
        }
        exec(snippet("Polars"), names)  # the page's own lines
        assert sorted(map(str, names["rows"].rows())) == served(platform, table["table"])


@pytest.mark.jvm
def test_spark_reads_what_is_served(platform: Platform, spark: SparkSession) -> None:
    for table in entries(platform):
        columns = [column["name"] for column in table["columns"]]
        names: dict[str, Any] = {"table": table, "columns": columns, "spark": spark}
        exec(snippet("Spark"), names)  # the page's own lines
        read = sorted(str(tuple(row)) for row in names["rows"].collect())
        assert read == served(platform, table["table"])
