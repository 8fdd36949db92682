"""The gallery: its templates hold the laws, also for events that come later.

Its pages are right: the ways of views, and the answers to queries, are those of the code. That a
template's rows follow from its own events is tested in test_template_rows.py, and in the tests of
the template itself, which test_init.py runs.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from house import HOUSE
from shares import long_except

from kappa import Pipeline
from kappa.base.duck import open_connection
from kappa.engine.children.law_check import hold_to_law
from kappa.engine.children.rehearsal import local_pipeline
from kappa.serving.query.render import Form, Listing, render_listing
from kappa.tables.views.view_tables import build_tables
from kappa.tables.views.ways import ways_of
from kappa.testing import Event, _log, law_of_views, read_events, tables_of

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

GALLERY = HOUSE / "docs" / "gallery"
TEMPLATES = HOUSE / "kappa" / "templates"
NAMES = ("ads", "fraud", "iot", "searches", "sessions", "shop", "trending")
# A share of the long tests runs these alone: test_template_rows.py computes their rows always.
SELDOM = ("ab-test", "facts", "learner", "operations", "recommend")
ALL_NAMES = (*NAMES, *SELDOM)
# The topic to which a page produces one event more after its first answer.
LATER = {"shop": "customers", "searches": "offers"}
Rows = list[dict[str, Any]]


def pipeline_of(name: str) -> Pipeline:
    folder = str(TEMPLATES / name / "pipelines")
    if folder not in sys.path:
        sys.path.append(folder)
    module = name.replace("-", "_")
    return getattr(importlib.import_module(module), module)


def events_of(name: str) -> dict[str, list[Any]]:
    """Returns the events that the page's commands produce, per topic."""
    made = read_events(TEMPLATES / name / "events")
    for topic, events in read_events(TEMPLATES / name / "events" / "later").items():
        made[topic] += events
    return {topic: [*map(with_fields, events)] for topic, events in made.items()}


def with_fields(event: Any) -> Any:
    """Returns a JSON event with its value as a mapping, even if it was given as an envelope."""
    if not isinstance(event, Event) or not event.value.startswith(b"{"):
        return event
    return replace(event, value=json.loads(event.value))


@cache
def tables(name: str) -> dict[str, Rows]:
    found = tables_of(pipeline_of(name), events_of(name))
    assert found["rejects"] == []
    return found


def time(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["happened_at"])


def dicts(columns: str, rows: Iterable[tuple[Any, ...]]) -> Rows:
    names = columns.split()
    return [dict(zip(names, row, strict=True)) for row in sorted(rows)]


def test_a_customer_who_moves_takes_the_revenue_along() -> None:
    made = events_of("shop")
    country = {each["id"]: each["country"] for each in made["customers"]}
    product = {each["sku"]: each for each in made["products"]}
    orders, revenue = Counter[str](), defaultdict[str, Decimal](Decimal)
    for order in made["orders"]:
        sold = product[order["product"]]
        of = country[order["customer"]], sold["category"]
        for group in of:
            orders[group] += 1
            revenue[group] += order["quantity"] * Decimal(str(sold["price"]))

    wanted = {each: (orders[each], revenue[each]) for each in orders}
    found = [*tables("shop")["revenue_by_country"], *tables("shop")["revenue_by_category"]]
    assert {
        row.get("country") or row["category"]: (row["orders"], row["revenue"]) for row in found
    } == wanted
    assert "ES" in wanted


def test_an_order_of_an_unknown_customer_counts_too() -> None:
    order = {"id": "o", "customer": "c", "product": "p", "quantity": 2, "happened_at": 0}
    product = {"sku": "p", "category": "food", "price": 1.5}
    found = tables_of(pipeline_of("shop"), {"orders": [order], "products": [product]})

    assert found["revenue_by_country"] == [
        {"country": "unknown", "orders": 1, "revenue": Decimal("3.00")}
    ]


def test_an_offer_is_found_by_each_search_that_waits_for_it() -> None:
    made = events_of("searches")
    wanted = [
        (s["id"], o["id"], s["person"], o["title"], Decimal(o["price"]), time(o))
        for s in made["searches"]
        for o in made["offers"]
        if s["word"] in o["title"].lower()
        and s["category"] in {None, o["category"]}
        and (s["most"] is None or o["price"] <= s["most"])
    ]

    found = tables("searches")["found"]
    assert found == dicts("search offer person title price happened_at", wanted)
    assert {row["search"] for row in found if row["offer"] == "o-new"} == {"s2", "s4"}
    gone = Event(None, key="s2")
    left = tables_of(pipeline_of("searches"), {**made, "searches": [*made["searches"], gone]})
    assert left["found"] == [row for row in found if row["search"] != "s2"]
    (alert,) = pipeline_of("searches").alerts
    assert (alert.of, alert.on) == ("found", ("insert",))


@pytest.mark.parametrize("name", long_except(["shop"], ALL_NAMES))
def test_the_law_of_views_holds(name: str) -> None:
    few = {topic: [*events[:2], events[-1]] for topic, events in events_of(name).items()}

    law_of_views(pipeline_of(name), few, cuts=1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["fraud", "iot", "learner", "operations", "recommend", "sessions"])
def test_the_law_of_slices_holds_for_steps(name: str) -> None:
    pipeline = pipeline_of(name)
    few = {topic: events[-5:] for topic, events in events_of(name).items()}

    with local_pipeline(pipeline) as local:
        # Spark's own way is tried on a sample by each deploy, and takes ten seconds.
        hold_to_law(local, _log(pipeline, few), cuts=0, most_slices=5, by_spark=False)


@pytest.mark.parametrize("name", long_except(NAMES, ALL_NAMES))
def test_a_page_tells_how_views_are_kept(name: str) -> None:
    pipeline = pipeline_of(name)
    with local_pipeline(pipeline) as local:
        ways = ways_of(build_tables(pipeline, local.outputs))
    rows = re.findall(
        r"^\| `(\w+)` \| (by (?:touched|change).*?|whole.*?) \|", page(name), re.MULTILINE
    )

    assert dict(rows) == {view: str(way).partition(":")[0] for view, way in ways.items()}


@pytest.mark.parametrize("name", long_except(NAMES, ALL_NAMES))
def test_a_page_shows_true_answers(name: str) -> None:
    shown = list(answers(name))

    assert shown
    assert [text for text, _ in shown] == [true for _, true in shown]


def page(name: str) -> str:
    return (GALLERY / f"{name}.md").read_text(encoding="utf-8")


def answers(name: str) -> Iterator[tuple[str, str]]:
    """Yields each answer on a page, with the query's real answer after the commands above it."""
    produced, sql = list[str](), ""
    for kind, text in re.findall(r"```(sh|text)[^\n]*\n(.*?)```", page(name), re.DOTALL):
        if kind == "text":
            yield text, answer(name, frozenset(produced), sql)
        else:
            produced += re.findall(r"kappa produce \S+ events/(\S+)", text)
            sql = re.findall(r'kappa query "([^"]*)"', text)[-1]
    files = (TEMPLATES / name / "events").rglob("*.ndjson")
    assert {*produced} == {str(file.relative_to(TEMPLATES / name / "events")) for file in files}


def answer(name: str, produced: frozenset[str], sql: str) -> str:
    if name in LATER and f"later/{LATER[name]}.ndjson" not in produced:
        made, topic = events_of(name), LATER[name]
        found = tables_of(pipeline_of(name), {**made, topic: made[topic][:-1]})
    else:
        found = tables(name)
    with open_tables(found) as duck:
        result = duck.sql(sql)
        return render_listing(Form.TABLE, Listing(tuple(result.columns), tuple(result.fetchall())))


@contextmanager
def open_tables(found: Mapping[str, Rows]) -> Iterator[DuckDBPyConnection]:
    """Opens a connection with these rows as tables. Tables without rows are left out."""
    with open_connection() as duck:
        for table, rows in found.items():
            if rows:
                duck.register(table, pa.Table.from_pylist(rows))
        yield duck
