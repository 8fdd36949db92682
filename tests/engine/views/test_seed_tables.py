"""Tables with the rows of a file: complete at the first frontier, unchanged at all later ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from house import HOUSE

from kappa import Pipeline
from kappa.base.errors import Broken, DeclarationError
from kappa.code.project import load_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.children.rehearsal import Rehearsal

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

SALES = """
from kappa import Table, Topic, View, pipeline, sum_

SALES = Topic("sales", event="currency string, amount decimal(10,2)", partitions=2)


@pipeline(
    reads={"sales": SALES},
    writes=[
        Table("totals", keys=("currency",), fold={"amount": sum_("amount")}),
        Table("rates", file="rates.csv", keys=("currency",),
              columns="currency string, rate decimal(10,4), since date", checks=["rate > 0"]),
        Table("names", file="../shared/names.csv"),
        View("in_euro", "select currency, amount * rate as euro from totals join rates"
             " using (currency)", keys=("currency",)),
        View("rated", "select currency, name from rates join names using (currency)",
             keys=("currency",)),
        View("rated_names", "select name, count(*)::bigint as n from rated group by name",
             keys=("name",)),
    ],
)
def sales(sales):
    return {"totals": sales}
"""  # fmt: skip
RATES = "currency,rate,since\nEUR,1,2024-01-01\nGBP,1.1734,\n"
NAMES = 'currency,name\nEUR,"Euro, the"\nGBP,\nUSD,Dollar\n'
EURO = ("EUR", "Euro, the")


def made(folder: Path, rates: str = RATES, code: str = SALES) -> Pipeline:
    for name, text in {
        "kappa.toml": "",
        "pipelines/sales.py": code,
        "pipelines/rates.csv": rates,
        "shared/names.csv": NAMES,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return load_project(folder).pipelines["sales"]


def rows(built: Rehearsal, table: str, *columns: str) -> list[tuple[object, ...]]:
    found = built.table(table).to_pylist()
    return sorted(
        (tuple(row[column] for column in columns) for row in found if not row.get("_deleted")),
        key=str,
    )


@pytest.mark.long
@pytest.mark.parametrize("driver_rows", [1_000, 0])
def test_rows_of_files_are_there_at_every_frontier(
    spark: SparkSession, tmp_path: Path, driver_rows: int
) -> None:
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline

    log = MemoryLog()
    with local_pipeline(made(tmp_path / "project")) as local:
        built = Rehearsal(tmp_path / "root", local, log, driver_rows=driver_rows)

        def ensure_there() -> None:
            assert [(str(currency), str(rate)) for currency, rate in
                    rows(built, "rates", "currency", "rate")] == [
                ("EUR", "1.0000"), ("GBP", "1.1734")]  # fmt: skip
            assert rows(built, "names", "currency", "name") == [
                EURO, ("GBP", None), ("USD", "Dollar")]  # fmt: skip
            assert rows(built, "rated", "currency", "name") == [EURO, ("GBP", None)]
            assert rows(built, "rated_names", "name", "n") == [("Euro, the", 1), (None, 1)]

        ensure_there()
        assert rows(built, "in_euro", "currency") == []
        for amount, currency in ((100, "GBP"), (50, "GBP"), (7, "CHF")):
            log.add("sales", 0, json.dumps({"currency": currency, "amount": amount}).encode())
            built.fold(log.end)
            ensure_there()
        built.close()
        built.begin(driver_rows=driver_rows)
        log.add("sales", 1, b'{"currency": "EUR", "amount": 1}')
        built.fold(log.end)
        ensure_there()
        assert [(a, float(b)) for a, b in rows(built, "in_euro", "currency", "euro")] == [
            ("EUR", 1.0), ("GBP", 176.01)]  # fmt: skip
        built.close()


def test_the_function_returns_no_rows_for_it(spark: SparkSession, tmp_path: Path) -> None:
    from kappa.testing import tables_of

    code = SALES.replace('{"totals": sales}', '{"totals": sales, "names": sales}')

    with pytest.raises(DeclarationError, match="for table names, which takes them from its file"):
        tables_of(made(tmp_path, code=code), {})


def test_a_view_of_files_with_several_rows_of_one_key_stops_the_build(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kappa.testing import tables_of

    code = SALES.replace(
        '"select name, count(*)::bigint as n from rated group by name"',
        "\"select coalesce(name, 'Euro, the') as name from rated\"",
    )

    with pytest.raises(Broken, match="rated_names: several rows have the keys name='Euro, the'"):
        tables_of(made(tmp_path, code=code), {})


def test_the_page_shows_what_works(spark: SparkSession, tmp_path: Path) -> None:
    from pasted import blocks

    from kappa.testing import tables_of

    page = "docs/howto/rows-of-a-file.md"
    (code,) = blocks(page)
    text = (HOUSE / page).read_text(encoding="utf-8")
    (rates,) = re.findall(r"^```\n(currency.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.py").write_text(code.text, encoding="utf-8")
    (tmp_path / "pipelines" / "rates.csv").write_text(rates, encoding="utf-8")

    found = tables_of(
        load_project(tmp_path).pipelines["sales"],
        {"sales": [{"currency": "GBP", "amount": 100}, {"currency": "CHF", "amount": 1}]},
    )

    assert [(row["currency"], str(row["rate"])) for row in found["rates"]] == [
        ("EUR", "1.0000"), ("GBP", "1.1734")]  # fmt: skip
    assert [(row["currency"], float(row["euro"])) for row in found["in_euro"]] == [("GBP", 117.34)]


@pytest.mark.long
def test_the_law_of_slices_holds_beside_rows_of_files(spark: SparkSession, tmp_path: Path) -> None:
    from kappa.testing import law_of_slices, some_events

    declared = made(tmp_path)

    law_of_slices(declared, some_events(declared, 12), cuts=2)
