"""The gallery: its templates give what plain Python finds in the same events, and hold laws.

Its pages are true: the ways of views, and the answers to queries, are those of the code.
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
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from builds import INTERPRETED
from house import HOUSE
from shares import long_except

from kappa import Pipeline
from kappa.base.duck import open_connection
from kappa.engine.children.rehearsal import local_pipeline
from kappa.engine.children.slicings import hold_to_law
from kappa.serving.query.render import Form, Listing, render_listing
from kappa.tables.views.births import build_tables
from kappa.tables.views.ways import ways_of
from kappa.testing import Event, _log, law_of_views, read_events, tables_of

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

GALLERY = HOUSE / "docs" / "gallery"
TEMPLATES = HOUSE / "kappa" / "templates"
NAMES = ("ads", "fraud", "iot", "searches", "sessions", "shop", "trending")
# The topic to which a page produces one event more after its first answer.
LATER = {"shop": "customers", "searches": "offers"}
TEN_MINUTES = timedelta(minutes=10)
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Interprets the plans of a few rows."""
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name in INTERPRETED:
        spark.conf.unset(name)


def pipeline_of(name: str) -> Pipeline:
    folder = str(TEMPLATES / name / "pipelines")
    if folder not in sys.path:
        sys.path.append(folder)
    return getattr(importlib.import_module(name), name)


def events_of(name: str) -> dict[str, list[Any]]:
    """Returns what the commands of the page produce, per topic."""
    made = read_events(TEMPLATES / name / "events")
    for topic, events in read_events(TEMPLATES / name / "events" / "later").items():
        made[topic] += events
    return {topic: [*map(with_fields, events)] for topic, events in made.items()}


def with_fields(event: Any) -> Any:
    """Returns an event whose value is a mapping, though it was an envelope."""
    return replace(event, value=json.loads(event.value)) if isinstance(event, Event) else event


@cache
def tables(name: str) -> dict[str, Rows]:
    found = tables_of(pipeline_of(name), events_of(name))
    assert found["rejects"] == []
    return found


def time(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["happened_at"])


def floor(at: datetime, minutes: int) -> datetime:
    return at - timedelta(
        minutes=at.minute % minutes, seconds=at.second, microseconds=at.microsecond
    )


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


def test_late_readings_are_in_the_five_minutes_they_were_taken_in() -> None:
    windows = defaultdict[tuple[str, datetime], list[tuple[bool, Decimal]]](list)
    for event in events_of("iot")["measurements"]:
        reading = event.value
        late = event.timestamp_ms / 1000 - time(reading).timestamp() > 300
        windows[reading["sensor"], floor(time(reading), 5)].append(
            (late, Decimal(str(reading["celsius"])))
        )

    found = tables("iot")["celsius_by_5_minutes"]
    assert [(row["sensor"], row["since"], row["readings"], row["late"]) for row in found] == [
        (*key, len(of), sum(late for late, _ in of)) for key, of in sorted(windows.items())
    ]
    for row in found:
        degrees = [celsius for _, celsius in windows[row["sensor"], row["since"]]]
        assert row["highest"] == max(degrees)
        assert row["mean"] == pytest.approx(float(sum(degrees)) / len(degrees))
    assert sum(row["late"] for row in found) > 5


def test_an_alarm_is_raised_after_ten_silent_minutes() -> None:
    arrived = defaultdict[str, list[datetime]](list)
    for event in events_of("iot")["measurements"]:
        at = datetime.fromtimestamp(event.timestamp_ms / 1000, UTC)
        arrived[event.key.decode()].append(at)
    end = max(at for times in arrived.values() for at in times)
    alarms, silent = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for sensor, times in arrived.items():
        for one, following in pairwise(times):
            if following - one >= TEN_MINUTES:
                alarms += [(sensor, "silent", one + TEN_MINUTES), (sensor, "back", following)]
        if end - times[-1] >= TEN_MINUTES:
            alarms.append((sensor, "silent", times[-1] + TEN_MINUTES))
            silent.append((sensor, times[-1]))

    assert tables("iot")["alarms"] == dicts("sensor alarm raised_at", alarms)
    assert tables("iot")["silent_sensors"] == dicts("sensor last", silent)
    assert {alarm for _, alarm, _ in alarms} == {"silent", "back"}
    assert silent


def test_a_hit_is_in_two_windows_and_one_session() -> None:
    made = events_of("sessions")["page_hits"]
    windows = defaultdict[tuple[str, datetime], list[str]](list)
    visits = defaultdict[str, list[tuple[datetime, str]]](list)
    for hit in made:
        since = floor(time(hit), 5)
        for each in (since - timedelta(minutes=5), since):
            windows[hit["page"], each].append(hit["visitor"])
        visits[hit["visitor"]].append((time(hit), hit["page"]))
    sessions = [
        (visitor, of[0][0], of[-1][0], of[0][1], len(of))
        for visitor, seen in visits.items()
        for of in ended_sessions(seen)
    ]

    found = tables("sessions")
    assert found["page_windows"] == dicts(
        "page since hits visitors", ((*key, len(of), len({*of})) for key, of in windows.items())
    )
    assert found["page_sessions"] == dicts("visitor since until landing hits", sessions)
    hits = defaultdict[str, list[int]](list)
    for *_, landing, number in sessions:
        hits[landing].append(number)
    assert found["landings"] == dicts(
        "landing sessions bounced hits longest",
        ((page, len(of), of.count(1), sum(of), max(of)) for page, of in hits.items()),
    )
    busiest = {
        since: min(
            (-len(of), page, len({*of})) for (page, at), of in windows.items() if at == since
        )
        for _, since in windows
    }
    assert found["busiest_pages"] == dicts(
        "since page hits visitors",
        ((since, page, -hits, visitors) for since, (hits, page, visitors) in busiest.items()),
    )


def ended_sessions(seen: list[tuple[datetime, str]]) -> Iterator[list[tuple[datetime, str]]]:
    """Cuts a visitor's hits at pauses; the last session is open."""
    begin = 0
    for number, (one, following) in enumerate(pairwise(seen), 1):
        if following[0] - one[0] > timedelta(minutes=30):
            yield seen[begin:number]
            begin = number


def test_a_transfer_after_a_break_in_is_suspicious() -> None:
    made = events_of("fraud")
    break_ins = {
        login["id"]: (login["account"], time(login), failed)
        for login in made["logins"]
        if login["ok"]
        and (
            failed := sum(
                not each["ok"]
                and each["account"] == login["account"]
                and timedelta() <= time(login) - time(each) <= TEN_MINUTES
                for each in made["logins"]
            )
        )
        >= 3
    }
    suspicious, amounts = list[tuple[Any, ...]](), defaultdict[str, list[Decimal]](list)
    for each in made["transfers"]:
        amount, account = Decimal(str(each["amount"])), each["account"]
        entered = [
            at
            for of, at, _ in break_ins.values()
            if of == account and timedelta() <= time(each) - at <= TEN_MINUTES
        ]
        if amount >= 500 and entered:
            suspicious.append((account, each["id"], amount, time(each), max(entered)))
            amounts[account].append(amount)

    found = tables("fraud")
    assert found["break_ins"] == dicts(
        "account login entered_at failed",
        ((of, login, *rest) for login, (of, *rest) in break_ins.items()),
    )
    assert found["suspicious_transfers"] == dicts(
        "account transfer amount sent_at broken_into_at", suspicious
    )
    assert found["suspicious_accounts"] == dicts(
        "account transfers amount", ((of, len(all_), sum(all_)) for of, all_ in amounts.items())
    )
    assert 0 < len(suspicious) < len(made["transfers"]) / 2


def test_a_word_trends_by_the_posts_it_gained() -> None:
    posts = Counter(
        (word, floor(time(post), 60))
        for post in events_of("trending")["posts"]
        for word in {*re.findall("[a-z]+", post["text"].lower())}
        - {"a", "and", "is", "of", "on", "the", "to", "with"}
    )
    trending = list[tuple[Any, ...]]()
    for hour in {hour for _, hour in posts}:
        rises = sorted(
            (posts[word, hour - timedelta(hours=1)] - number, -number, word)
            for (word, at), number in posts.items()
            if at == hour
        )
        trending += [
            (hour, place, word, -number, -rise)
            for place, (rise, number, word) in enumerate(rises[:5], 1)
        ]

    assert tables("trending")["trending"] == dicts("hour place word posts rise", trending)
    assert min(rise for *_, rise in trending) < 0 < max(rise for *_, rise in trending)


def test_a_click_counts_within_ten_minutes_of_its_impression() -> None:
    made = events_of("ads")
    shown = {each["id"]: time(each) for each in made["impressions"]}
    clicked, unmatched = defaultdict[str, list[datetime]](list), list[tuple[Any, ...]]()
    for click in made["ad_clicks"]:
        of = click["impression"]
        if of in shown and shown[of] <= time(click) <= shown[of] + TEN_MINUTES:
            clicked[of].append(time(click))
        else:
            unmatched.append((of, click["id"], time(click), shown.get(of)))
    campaigns = defaultdict[str, list[list[datetime]]](list)
    for each in made["impressions"]:
        campaigns[each["campaign"]].append(clicked.get(each["id"], []))

    found = tables("ads")
    assert found["clicked_impressions"] == dicts(
        "impression campaign shown_at clicked_at clicks",
        (
            (i["id"], i["campaign"], time(i), min(of, default=None), len(of))
            for i in made["impressions"]
            for of in [clicked.get(i["id"], [])]
        ),
    )
    assert found["unmatched_clicks"] == dicts("impression click clicked_at shown_at", unmatched)
    totals = [
        (campaign, len(of), sum(map(bool, of)), sum(map(len, of)))
        for campaign, of in campaigns.items()
    ]
    assert found["campaigns"] == dicts("campaign impressions clicked clicks", totals)
    assert found["click_rates"] == dicts(
        "campaign percent", ((of, round(100 * yes / all_, 1)) for of, all_, yes, _ in totals)
    )
    assert {shown_at is None for *_, shown_at in unmatched} == {True, False}


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


@pytest.mark.parametrize("name", long_except(["shop"], NAMES))
def test_the_law_of_views_holds(name: str) -> None:
    few = {topic: [*events[:2], events[-1]] for topic, events in events_of(name).items()}

    law_of_views(pipeline_of(name), few, cuts=1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["iot", "sessions"])
def test_the_law_of_slices_holds_for_steps(name: str) -> None:
    pipeline = pipeline_of(name)
    few = {topic: events[-5:] for topic, events in events_of(name).items()}

    with local_pipeline(pipeline) as local:
        # Spark's own way is tried on a sample by each deploy, and takes ten seconds.
        hold_to_law(local, _log(pipeline, few), cuts=0, most_slices=5, by_spark=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_tells_how_views_are_kept(name: str) -> None:
    pipeline = pipeline_of(name)
    with local_pipeline(pipeline) as local:
        ways = ways_of(build_tables(pipeline, local.outputs))
    rows = re.findall(
        r"^\| `(\w+)` \| (by (?:touched|change).*?|whole.*?) \|", page(name), re.MULTILINE
    )

    assert dict(rows) == {view: str(way).partition(":")[0] for view, way in ways.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_true_answers(name: str) -> None:
    shown = list(answers(name))

    assert shown
    assert [text for text, _ in shown] == [true for _, true in shown]


def page(name: str) -> str:
    return (GALLERY / f"{name}.md").read_text(encoding="utf-8")


def answers(name: str) -> Iterator[tuple[str, str]]:
    """Yields each answer on a page, and what the query gives after the commands above it."""
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
    """Opens a connection that has these rows as tables; a table without rows is left out."""
    with open_connection() as duck:
        for table, rows in found.items():
            if rows:
                duck.register(table, pa.Table.from_pylist(rows))
        yield duck
