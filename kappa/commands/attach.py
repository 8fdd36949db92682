"""The command `kappa attach`: prints a program that reads a table, or a file to watch Kappa.

docs/howto/read-the-files.md contains the same programs, and the rules for tools that read the files
of tables. A test runs each program whose package is installed.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappa.base.errors import UsageError, near_or_all
from kappa.commands.terminal.options import here_of

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext

_NONE_SERVED = "nothing is served yet: kappa deploy"


def attach(
    context: typer.Context,
    tool: Annotated[Tool, typer.Argument(help="the tool that reads")],
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="a served table; the first, if left out")
    ] = None,
) -> None:
    """Print a program with which another tool reads a served table, or a file to watch Kappa.

    Save the program in a file, and run the file with Python: `kappa attach polars page_hits >
    read.py`. For a notebook, the output is an .ipynb file, and for dbt, a file that declares a
    source. For `grafana`, the output is a dashboard to import, and for `prometheus`, a file of
    alert rules. These two watch the whole platform, so they take no table.
    """
    if tool in _WATCHERS:
        if table is not None:
            raise UsageError(
                f"{tool} watches the whole platform, and no table",
                hint=f"kappa attach {tool} > {_WATCHERS[tool]}",
            )
        from kappa.replay.status.monitoring import grafana_dashboard, prometheus_rules

        watch = grafana_dashboard if tool is Tool.GRAFANA else prometheus_rules
        sys.stdout.write(watch())
        return
    here = here_of(context)
    sys.stdout.write(
        snippet_of(tool, _table_named(here, table, tool), project=str(here.settings.project))
    )


def _table_named(here: ProjectContext, name: str | None, tool: Tool) -> str:
    """Returns the name of a served table or view that the tool can read.

    If `name` is None, returns the first such name. Raises UsageError if no table or view with this
    name is served, or if the tool cannot read the view with this name.
    """
    from kappa.declare.options import REJECTS
    from kappa.state.build import read_birth
    from kappa.state.journal.events import GenerationMade
    from kappa.state.journal.journal import JournalView

    _, record = JournalView(here.store).last_served()
    event = None if record is None else record.event
    serving = event.serving if isinstance(event, GenerationMade) else {}
    births = [read_birth(here.store, build) for _, build in sorted(serving.items())]
    tables = [each.name for birth in births for each in birth.tables if each.name != REJECTS]
    views = [view for birth in births for view in birth.views]
    if name is None:
        if not tables:
            raise UsageError("no table is served", hint=_NONE_SERVED)
        return tables[0]
    if name in views and tool is not Tool.DBT:
        raise UsageError(
            f"{name} is a view, which is computed at reading and has no files",
            hint=f'kappa query "from {name}" --out {name}.parquet',
        )
    if name not in {*tables, *views}:
        raise UsageError(
            f"no pipeline serves a table {name}",
            hint=near_or_all(name, [*tables, *views], none=_NONE_SERVED),
        )
    return name


class Tool(StrEnum):
    """A tool that reads the rows of a served table, or that watches the platform."""

    SPARK = "spark"
    POLARS = "polars"
    PANDAS = "pandas"
    DUCKDB = "duckdb"
    DBT = "dbt"
    NOTEBOOK = "notebook"
    GRAFANA = "grafana"
    PROMETHEUS = "prometheus"


# The tools that watch the platform, each with a name for its file.
_WATCHERS = {Tool.GRAFANA: "kappa.json", Tool.PROMETHEUS: "kappa-rules.yml"}

# The first lines of each program: the entry of the table, as Kappa serves the table now.
ENTRY = """\
import json
import subprocess

command = {command}
table = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
columns = [column["name"] for column in table["columns"]]
"""

SPARK = """\
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

spark = configure_spark_with_delta_pip(
    SparkSession.builder.config(
        "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
    ).config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
).getOrCreate()
rows = spark.read.format("delta").option("versionAsOf", table["version"]).load(table["path"])
rows = rows.where((table["where"] or "true").replace('"', "`")).select(*columns)
"""

POLARS = """\
import polars as pl

rows = pl.scan_delta(table["path"], version=table["version"])
if table["where"]:
    rows = rows.filter(pl.col("_deleted").ne_missing(True))
rows = rows.select(columns).collect()
"""

DUCKDB = """\
import duckdb
from deltalake import DeltaTable

duckdb.execute("set TimeZone = 'UTC'")
files = DeltaTable(table["path"], version=table["version"]).to_pyarrow_dataset()
listed = ", ".join(f'"{column}"' for column in columns)
rows = duckdb.sql(f"select {listed} from files where {table['where'] or 'true'}")
"""

# DuckDB applies the condition for the served rows, and gives pandas its types.
PANDAS = f"""\
{DUCKDB}frame = rows.df()
"""

DBT = """\
# models/kappa.yml of a dbt project with dbt-duckdb. Before each dbt build:
#   {query}
sources:
  - name: kappa
    tables:
      - name: {table}
        config:
          external_location: "read_parquet('{file}')"
"""

READERS = {
    Tool.SPARK: SPARK,
    Tool.POLARS: POLARS,
    Tool.PANDAS: PANDAS,
    Tool.DUCKDB: DUCKDB,
    Tool.NOTEBOOK: PANDAS,
}
_SHOWN = {Tool.SPARK: "rows.show()", Tool.PANDAS: "print(frame)", Tool.NOTEBOOK: "frame"}


def snippet_of(tool: Tool, table: str, *, project: str) -> str:
    """Returns the text of a program with which a tool reads a table.

    `project` is the folder of the project. The text ends with a newline.
    """
    kappa = ["kappa", "--project", project]
    if tool is Tool.DBT:
        file = f"{table}.parquet"
        query = [*kappa, "query", f'"from {table}"', "--out", file]
        return DBT.format(query=" ".join(query), table=table, file=file)
    entry = ENTRY.format(command=json.dumps([*kappa, "tables", table, "-o", "json"]))
    last = _SHOWN.get(tool, "print(rows)")
    if tool is Tool.NOTEBOOK:
        return _notebook(f"Table `{table}`, as Kappa serves the table now.", entry, PANDAS + last)
    return f"{entry}\n{READERS[tool]}{last}\n"


def _notebook(title: str, *cells: str) -> str:
    """Returns a Jupyter notebook (nbformat 4.5) with a title and cells of code."""
    code: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"code-{number}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": cell.splitlines(keepends=True),
        }
        for number, cell in enumerate(cells, start=1)
    ]
    head = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": [title]}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": [head, *code],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1) + "\n"
