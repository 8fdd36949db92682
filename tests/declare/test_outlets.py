"""Sinks and alerts that do not fit their pipeline are refused with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kappa import Alert, Avro, Csv, Pipeline, Sink, Table, Topic, View, count, pipeline
from kappa.base.errors import DeclarationError
from kappa.code.project import load_pipelines
from kappa.declare.alert import OPS

HITS = Topic("hits", event="page string, n int", key="page")
PAGES = Table("pages", keys=("page",), fold={"rows": count()})
ALL = Table("every_hit")
TOP = View("top", "select page from pages")
BEST = View("best", "select page, rows from pages", keys=("page",))
BY = View("of_page", "select page, n from every_hit", by=("page",))
NEWEST = Table("newest", latest=HITS)


def written(*outlets: Any) -> Pipeline:
    def function(hits: Any) -> dict[str, Any]:
        return {"pages": hits, "every_hit": hits}

    return pipeline(
        reads={"hits": HITS}, writes=[PAGES, ALL, TOP, BEST, BY, NEWEST, *outlets], name="web"
    )(function)


@pytest.mark.parametrize("of", ["pages", "best", "newest"])
def test_a_sink_is_of_any_table_or_maintained_view_with_keys(of: str) -> None:
    sink = Sink("out", of=of, columns=["rows"], where="rows > 1", partitions=2)

    assert written(sink).sinks == (sink,)
    assert (sink.columns, sink.partitions) == (("rows",), 2)


@pytest.mark.parametrize("of", ["pages", "best", "newest", "every_hit", "of_page"])
def test_an_alert_is_of_any_table_or_maintained_view(of: str) -> None:
    alert = Alert("late-page", of=of, to="https://example.org/x?team=ops", on=("delete", "insert"))

    assert written(alert).alerts == (alert,)
    assert alert.on == ("insert", "delete")
    assert Alert("a", of=of, to="page").on == OPS


def test_sinks_of_one_format_are_equal_and_json_is_the_first_one() -> None:
    one, other = (Sink("out", of="pages", format=Csv(separator=";")) for _ in range(2))

    assert one == other
    assert one.outlet_birth == other.outlet_birth
    assert one != Sink("out", of="pages", format="csv")
    assert Sink("out", of="pages").outlet_birth.format is None


def test_a_sink_or_an_alert_may_be_called_as_its_table_is() -> None:
    sink, alert = Sink("pages", of="pages"), Alert("pages", of="pages", to="command:call-me")

    made = written(sink, alert)

    assert made.outlets == (sink, alert)
    assert (sink.part_name, alert.part_name) == ("sink pages", "alert pages")


Declare = Callable[[], Any]


def sink(name: str = "x", of: Any = "pages", **more: Any) -> Declare:
    return lambda: Sink(name, of=of, **more)


def alert(name: str = "x", of: Any = "pages", to: Any = "page", **more: Any) -> Declare:
    return lambda: Alert(name, of=of, to=to, **more)


def writing(*declared: Declare) -> Declare:
    return lambda: written(*(each() for each in declared))


NO_ADDRESS = "which is not an address"
REFUSED: list[tuple[Declare, str, str]] = [
    (writing(sink("a b")), "'a b' is not a valid name of a Kafka topic", "letters"),
    (writing(sink("..")), "'..' is not a valid name of a Kafka topic", "letters"),
    *(
        (writing(sink(name)), f"topic {name} is", "its own")
        for name in (
            *("__consumer_offsets", "__transaction_state", "_schemas", "_confluent-metrics"),
            *("connect-offsets", "app-counts-changelog", "mm2-offsets.a.internal"),
        )
    ),
    (lambda: Topic("__consumer_offsets", event="x int"), "is one of Kafka's own", "events"),
    (writing(sink(partitions=0)), "x has 0 partitions", "from 1"),
    (writing(sink(of=PAGES)), "of table pages, which is not a valid table name", 'of="page'),
    (writing(sink(of="page")), "of page, which is not a table of pipeline web", "pages?"),
    (writing(sink(of="rejects")), "is not a table of pipeline", "there are best"),
    (writing(sink(of="top")), "view top, which is computed when", 'View("top", ...'),
    (writing(alert(of="top")), "alert x is of view top, which", "keys"),
    (writing(sink(of="every_hit")), "every_hit, which has no keys", "give every_hit"),
    (writing(sink(of="of_page")), "of_page, which has no keys", "give of_page"),
    (writing(sink("hits")), "topic that its own pipeline reads", "its own"),
    (writing(sink(), sink(of="best")), "sink x is declared twice", "another topic"),
    (writing(alert(), alert(of="best")), "alert x is declared twice", "another name"),
    (sink(where=3), "an int for its where", "leave where out"),
    (sink(where=" "), "sink x has no condition", "leave where out"),
    (sink(format="xml"), "sink x: format is", "a format is"),
    (sink(format="access-log"), "not written as Text", "Csv(...)"),
    (
        lambda: Sink("x", of="pages", format=Avro("tests/data/order.avsc", framed=True)),
        "sink x: there is no id of a schema",
        "declare the subject",
    ),
    (sink(columns="rows"), "columns='rows'", "columns=('rows',)"),
    (sink(columns=["a", "a"]), "a column twice", ""),
    (alert("X"), "'X' is not a valid alert name", "lower case"),
    (alert(to="ftp://a"), f"goes to 'ftp://a', {NO_ADDRESS}", "htt"),
    (alert(to="https://"), NO_ADDRESS, "https://..."),
    (alert(to="https://a:b"), NO_ADDRESS, "https://..."),
    (alert(to="http://a/ b"), NO_ADDRESS, "https://..."),
    (alert(to=HITS), f"goes to topic hits, {NO_ADDRESS}", "page"),
    (alert(to="command:"), "which names no command", "kappa.toml"),
    (alert(to="https://me:pw@a"), "a URL with a user in it", "settings"),
    (alert(to="https://a/?access_token=9"), "a URL with access_token in it", "settings"),
    (alert(on=("begin",)), "has 'begin' among its on", "on"),
    (alert(on=()), "has no change among its on", "on"),
    (alert(on="insert"), "on='insert'", "on=('insert',)"),
]


@pytest.mark.parametrize(("declare", "said", "hint"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_be_meant_is_refused_with_its_line(
    declare: Declare, said: str, hint: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()

    assert refused.value.message.startswith(f"{__file__}:")
    assert said in refused.value.message
    assert hint in refused.value.hint
    assert "pw" not in str(refused.value)


def test_no_secret_of_an_address_is_shown() -> None:
    with pytest.raises(DeclarationError) as refused:
        Alert("x", of="pages", to="https://ada:pw9@example.org")

    assert "pw9" not in str(refused.value)


def test_two_pipelines_cannot_have_one_sink(tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines").mkdir()
    for name in ("one", "two"):
        (tmp_path / "pipelines" / f"{name}.py").write_text(
            "from kappa import *\n"
            f'T = Topic("{name}", event="x int")\n'
            f'@pipeline(reads={{"t": T}}, writes=[Table("t_{name}", keys=("x",),'
            f' fold={{"n": count()}}), Sink("out", of="t_{name}")])\n'
            f'def p_{name}(t):\n    return {{"t_{name}": t}}\n',
            encoding="utf-8",
        )

    with pytest.raises(DeclarationError, match="sink out is declared by pipeline p_two and by"):
        load_pipelines(tmp_path)
