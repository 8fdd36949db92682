"""Laws of the lineage of columns: sources from birth certificate and query, in every form."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from births import make_birth
from msgspec.structs import replace
from page_world import EVIL, HITS, World
from typing_in import Kappa, typist

from kappa.base.errors import UsageError
from kappa.declare.sink import SinkBirth
from kappa.replay.page.graph_layout import draw_graph
from kappa.replay.status.column_graph import column_graph, column_origins
from kappa.replay.status.graph import mermaid_text
from kappa.serving.http.page.render import graph_svg
from kappa.state.build import Birth, TopicBirth, put_birth, read_birth
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

VISITS = TopicBirth("visits", "id", "retained", 2)
KEPT = TableBirth(
    "kept", (("page", "string"), ("most", "bigint")),
    view="select page, max(hits + 0 * length(page)) as most from page_hits group by page",
    reads=("page_hits",),
)  # fmt: skip
PEOPLE = TableBirth("people", (("id", "string"), ("name", "string")), latest="people")
WEB = make_birth(
    "web-1",
    (HITS, KEPT, PEOPLE, REJECTS_BIRTH),
    topics=(VISITS, TopicBirth("people", "id3", "compacted", 1)),
    pipeline="web",
    views={"Top": 'select "Most" as best, name from kept, people where id = page'},
    sinks=(SinkBirth("pages", "kept", columns=("most",)),),
    lineage={
        "page_hits": {
            "page": (("visits", "url"), ("visits", "host")),
            "minute": (("visits", "at"),),
            "n": (("visits", "n"),),
        }
    },
)
SOLD = TableBirth("sold", (("most", "bigint"),), fold={"most": ("max", "most")})
SHOP = make_birth(
    "shop-1", (SOLD,), pipeline="shop", topics=(TopicBirth("pages", "id2", "compacted", 1),),
    lineage={"sold": {"most": (("pages", "most"),)}},
)  # fmt: skip


def edges_of(name: str, *births: Birth) -> set[tuple[str, str]]:
    graph = column_graph({each.pipeline: each for each in births or (WEB, SHOP)}, name)
    names = {each.id: each.name for each in graph.nodes}
    return {(names[each.source], names[each.target]) for each in graph.edges}


def test_a_column_has_what_feeds_it_and_what_it_feeds() -> None:
    assert edges_of("kept.most") == {
        ("visits.url", "page_hits.page"),
        ("visits.host", "page_hits.page"),
        ("page_hits.page", "kept.most"),
        ("page_hits.hits", "kept.most"),
        ("kept.most", "Top.best"),
        # What a sink sends is a field of a topic that another pipeline reads.
        ("kept.most", "pages.most"),
        ("pages.most", "sold.most"),
    }
    assert edges_of("shop.sold.most") >= {("kept.most", "pages.most")}
    assert edges_of("Top.name") == {("people.name", "people.name"), ("people.name", "Top.name")}


def test_a_column_says_how_it_is_made() -> None:
    origins = column_origins(WEB)

    assert origins["page_hits"]["page"].how == "key"
    assert origins["page_hits"]["hits"].how == "count()"
    assert origins["page_hits"]["hits"].sources == ()
    assert origins["people"]["name"].how == "latest"
    assert origins["kept"]["page"].text == "page_hits.page"
    assert "rejects" not in origins


def test_steps_take_all_columns_of_their_rows() -> None:
    """A step is Python code, so nobody knows which columns it uses, or what it emits from them."""
    stepped = TableBirth(
        "last", (("id", "string"), ("n", "int"), ("_offset", "bigint")), keys=("id",),
        steps_over=(("id", "string"), ("n", "int"), ("_offset", "bigint")),
    )  # fmt: skip
    emitted = TableBirth("silences", (("id", "string"),))
    lineage = {"last": {"id": (("visits", "id"),), "n": (("visits", "n"), ("visits", "m"))}}
    origins = column_origins(make_birth("b", (stepped, emitted), lineage=lineage))

    assert origins["last"]["id"].text == "visits.id"
    assert origins["last"]["n"].text == "visits.id, visits.n, visits.m"
    assert origins["silences"]["id"].how == "emitted by a step"


def test_an_older_build_says_what_is_not_known() -> None:
    old = replace(WEB, lineage={})

    assert column_origins(old)["page_hits"]["page"].text == "not known before the next deploy"
    assert edges_of("Top.best", old) == {
        ("page_hits.page", "kept.most"), ("page_hits.hits", "kept.most"), ("kept.most", "Top.best")
    }  # fmt: skip


def test_topics_of_a_pattern_are_one_source() -> None:
    birth = make_birth(
        "b", (replace(PEOPLE, latest="people-1"),),
        topics=(TopicBirth("people-1", "i", "compacted", 1, "people-.*"),),
    )  # fmt: skip

    assert column_origins(birth)["people"]["name"].text == "people-.*.name"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kept.mots", "kept.most"),
        ("kep.most", "kept"),
        ("kept", "TABLE.COLUMN"),
        ("", "TABLE.COLUMN"),
        ("rejects.reason", "TABLE.COLUMN"),
    ],
)
def test_a_column_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        column_graph({"web": WEB, "shop": SHOP}, name)

    assert message in str(refused.value.hint)


def test_a_name_of_two_pipelines_asks_which() -> None:
    other = replace(SHOP, pipeline="shop2")
    births = {"shop": SHOP, "shop2": other}
    with pytest.raises(UsageError) as refused:
        column_graph(births, "sold.most")

    assert "shop2.sold.most" in str(refused.value.hint)
    assert {each.pipeline for each in column_graph(births, "shop.sold.most").nodes} == {"", "shop"}


def test_hostile_names_of_columns_stay_text() -> None:
    quoted = EVIL.replace('"', '""')
    views = {"v": f'select page as "{quoted}" from page_hits'}
    birth = replace(WEB, tables=(HITS, REJECTS_BIRTH), views=views, sinks=())
    graph = column_graph({"web": birth}, f"v.{EVIL}")

    kinds = {
        each.tag.rpartition("}")[2]
        for each in ET.fromstring(graph_svg(draw_graph(graph), EVIL)).iter()
    }
    assert kinds <= {"svg", "title", "style", "g", "path", "rect", "text"}
    assert "<script" not in mermaid_text(graph)


# The command, over a world with a history.


@pytest.fixture
def kappa(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kappa:
    world = World(tmp_path)
    world.goes_live(world.build("web-1"), 1)
    birth = read_birth(world.store, "web-1")
    world.store.delete("builds/web-1/birth.json")
    put_birth(world.store, replace(birth, lineage=WEB.lineage))
    monkeypatch.chdir(tmp_path)
    return typist(capsys, monkeypatch)


@pytest.mark.slow
def test_the_command_prints_the_lineage_of_a_column(kappa: Kappa) -> None:
    document = json.loads(kappa("graph", "--column", "by_page.page", "-o", "json").out)

    assert {each["name"] for each in document["nodes"]} == {
        "visits.url", "visits.host", "page_hits.page", "by_page.page"
    }  # fmt: skip
    listed = kappa("graph", "--column", "by_page.hits").out
    assert "page_hits.hits" in listed
    assert "count()" in listed
    assert kappa("graph", "--column", "by_page.page", "-o", "mermaid").out.startswith("flowchart")
    assert "<svg" in kappa("graph", "--column", "by_page.page", "-o", "svg").out
    assert "leave web out" in kappa("graph", "web", "--column", "by_page.page").err
    described = kappa("tables", "page_hits").out
    assert "visits.url, visits.host" in described


@pytest.mark.slow
def test_a_declared_table_is_not_known_yet(kappa: Kappa, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "new.py").write_text(
        "from kappa import Table, Topic, pipeline\n"
        'T = Topic("t", event="id string")\n'
        '@pipeline(reads={"t": T}, writes=[Table("fresh")])\n'
        "def new(t):\n    return {'fresh': t}\n"
    )
    ended = kappa("graph", "--column", "fresh.id")

    assert ended.code != 0
    assert "not known before the first deploy" in ended.err
    assert "kappa deploy new" in ended.err
