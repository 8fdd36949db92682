"""Laws of `kappa attach`: each snippet, run as printed, reads the same as `kappa query`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform
from typing_in import Kappa

from kappa.commands.attach import DBT, ENTRY, READERS, Tool, snippet_of
from kappa.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "read-the-files.md"
KAPPA = Path(sys.executable).with_name("kappa")
TABLES = ("delays", "planes")


@pytest.fixture
def platform(project: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    platform = Platform(Store(project / ".kappa"))
    platform.serve(
        "flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}, {"all_planes": "from planes"}
    )
    monkeypatch.setenv("PATH", f"{KAPPA.parent}:{os.environ['PATH']}")
    return platform


def served(platform: Platform, name: str) -> list[str]:
    return sorted(map(str, platform.ask(f"from flights.{name}").rows))


def printed(kappa: Kappa, *words: str) -> str:
    ended = kappa("attach", *words).has(0)
    return ended.out


def variables(program: str) -> dict[str, Any]:
    """Runs a printed program; returns the names that it has defined."""
    names: dict[str, Any] = {}
    exec(program, names)  # as the user's own Python does
    return names


def without_missing(frame: Any) -> list[str]:
    """Returns the rows of a pandas frame, with None for missing values."""
    rows = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    return sorted(
        str(tuple(int(each) if isinstance(each, float) else each for each in row)) for row in rows
    )


# By library, how the rows of its printed program are read.
ROWS_OF: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "duckdb": lambda names: sorted(map(str, names["rows"].fetchall())),
    "pandas": lambda names: without_missing(names["frame"]),
    "polars": lambda names: sorted(map(str, names["rows"].rows())),
}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("library", ROWS_OF)
def test_a_library_reads_what_is_served(
    platform: Platform, kappa: Kappa, library: str, table: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"not run: no {library}")

    found = ROWS_OF[library](variables(printed(kappa, library, table)))

    assert found == served(platform, table)


@pytest.mark.slow
def test_the_cells_of_a_notebook_run(platform: Platform, kappa: Kappa) -> None:
    notebook = json.loads(printed(kappa, "notebook", "delays"))
    cells = ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]

    assert (notebook["nbformat"], notebook["cells"][0]["cell_type"]) == (4, "markdown")
    assert without_missing(variables("\n".join(cells))["frame"]) == served(platform, "delays")


@pytest.mark.jvm
@pytest.mark.parametrize("table", TABLES)
def test_spark_reads_what_is_served(
    platform: Platform, kappa: Kappa, spark: SparkSession, table: str
) -> None:
    """The program gets the session that already runs here, with Delta's jars."""
    names = variables(printed(kappa, "spark", table))

    assert names["spark"].sparkContext is spark.sparkContext
    assert sorted(str(tuple(row)) for row in names["rows"].collect()) == served(platform, table)


def run_in_head(text: str) -> None:
    """Runs the command in the head of a printed dbt file."""
    (command,) = re.findall(r"^#   (kappa .*)$", text, re.MULTILINE)
    subprocess.run(command, shell=True, check=True, capture_output=True)


@pytest.mark.slow
def test_the_source_of_dbt_reads_a_table_and_a_view(platform: Platform, kappa: Kappa) -> None:
    """dbt's source reads the data that the command in the file's head has written, without dbt."""
    import duckdb

    for table in ("planes", "all_planes"):
        text = printed(kappa, "dbt", table)
        run_in_head(text)
        (location,) = re.findall(r'external_location: "(.*)"$', text, re.MULTILINE)

        assert f"      - name: {table}\n" in text
        rows = duckdb.sql(f"from {location}").fetchall()
        assert sorted(map(str, rows)) == served(platform, table)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dbt") is None, reason="not run: no dbt with dbt-duckdb")
def test_dbt_builds_a_model_of_the_source(platform: Platform, kappa: Kappa, tmp_path: Path) -> None:
    import duckdb

    text = printed(kappa, "dbt", "planes")
    run_in_head(text)
    files = {
        "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\n",
        "profiles.yml": "shop: {target: a, outputs: {a: {type: duckdb, path: shop.duckdb}}}\n",
        "models/kappa.yml": text,
        "models/seats.sql": "{{ config(materialized='external', location='seats.parquet') }}\n"
        "select * from {{ source('kappa', 'planes') }}\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    subprocess.run(["dbt", "build", "--profiles-dir", "."], check=True, capture_output=True)

    rows = duckdb.sql("from 'seats.parquet'").fetchall()
    assert sorted(map(str, rows)) == served(platform, "planes")


def test_the_first_table_is_the_default(platform: Platform, kappa: Kappa) -> None:
    assert '"tables", "delays"' in printed(kappa, "duckdb")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("polars plane", "no pipeline serves a table plane", "did you mean planes?"),
        ("duckdb all_planes", "all_planes is a view", '"from all_planes" --out all_planes.parquet'),
        ("excel", "'excel' is not one of", "kappa attach --help"),
    ],
)
def test_a_wrong_table_or_tool_is_named(
    platform: Platform, kappa: Kappa, words: str, error: str, hint: str
) -> None:
    kappa("attach", *words.split()).has(2, error, hint)


def test_without_a_table_deploy_is_the_hint(kappa: Kappa) -> None:
    kappa("attach", "duckdb").has(2, "hint: nothing is served yet: kappa deploy")


def test_the_page_has_the_same_snippets() -> None:
    page = PAGE.read_text(encoding="utf-8")
    command = json.dumps(["kappa", "--project", "/project", "tables", "planes", "-o", "json"])

    assert ENTRY.format(command=command) in page
    for tool in (Tool.SPARK, Tool.POLARS, Tool.DUCKDB, Tool.PANDAS):
        assert READERS[tool] in page, tool
    assert snippet_of(Tool.DBT, "planes", project="/project") in page
    assert DBT.splitlines()[0] in page
