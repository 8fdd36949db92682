"""The snippets of `kappa attach`, with which other tools read a served table. Pure.

docs/howto/read-the-files.md has the same snippets, and the rules for a reader of files. A test runs
each snippet whose package is installed.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any


class Tool(StrEnum):
    """A tool that reads the rows of a served table."""

    SPARK = "spark"
    POLARS = "polars"
    PANDAS = "pandas"
    DUCKDB = "duckdb"
    DBT = "dbt"
    NOTEBOOK = "notebook"


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
    """Returns the text with which a tool reads a table of a project, with a line end at the end."""
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
