"""Laws of the lineage graph: what feeds what, what a rollout touches, and its picture."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from births import make_birth
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields
from page_world import ALERTS, EVIL, HITS, FakeLog, World
from typing_in import Kappa, typist

from kappa.base.errors import UsageError
from kappa.code.names import written_pipelines
from kappa.declare.sink import SinkBirth
from kappa.replay.page.graph_layout import HEIGHT, WIDTH, DrawnGraph, draw_graph
from kappa.replay.page.states import BEHIND, Health
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.status.graph import (
    JOINED,
    GraphEdge,
    GraphNode,
    ProjectGraph,
    graph_document,
    graph_listing,
    mermaid_text,
    nodes_around,
    outline_of_graph,
    part_of_graph,
    project_graph,
    with_joined_pipelines,
)
from kappa.replay.status.status import BuildStatus, Status
from kappa.replay.status.topics.topic_growth import begin_rates
from kappa.serving.http.page.render import graph_svg
from kappa.serving.query.reader.views import tables_named
from kappa.state import record_cache
from kappa.state.build import Birth, TopicBirth, read_birth
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH

VISITS = TopicBirth("visits", "id", "retained", 2)
KEPT = with_fields(HITS, name="kept", view="from page_hits", reads=("page_hits",))
WEB = make_birth(
    "web-1",
    (HITS, KEPT, REJECTS_BIRTH),
    topics=(VISITS,),
    pipeline="web",
    views={"by_page": "select * from kept", "bad": "from rejects"},
    sinks=(SinkBirth("pages", "by_page"),),
    alerts=ALERTS[:1],
)
SHOP = make_birth(
    "shop-1", (HITS_OF_SHOP := with_fields(HITS, name="sold"),), pipeline="shop",
    topics=(TopicBirth("pages", "id2", "compacted", 1),),
)  # fmt: skip


def status_of(*builds: Birth, rollout: str = "") -> Status:
    """Returns a status in which each build has folded 60 of 100 offsets of its topic."""
    shown = [
        BuildStatus(
            *(each.pipeline, "candidate" if each.build == rollout else "live", each.build, "v"),
            Offsets({topic.name: {0: 60} for topic in each.topics}),
            *(40, None, 60, 0),
            rollout=rolling(each) if each.build == rollout else None,
        )
        for each in builds
    ]
    return Status(1, tuple(shown), end=Offsets({"visits": {0: 100}, "pages": {0: 100}}))


def rolling(birth: Birth) -> Rollout:
    return Rollout(
        7, 4, birth.pipeline, birth.build, "v", (), Phase.REPLAYING, switch=False, at="", by="me"
    )


def graph_of(*candidates: Birth, live: tuple[Birth, ...] = (WEB, SHOP)) -> ProjectGraph:
    return project_graph(
        {each.pipeline: each for each in live},
        {each.pipeline: each for each in candidates},
        status_of(*live, *candidates, rollout="".join(each.build for each in candidates)),
        {"now": ("Pages now", frozenset({"by_page", "elsewhere"}))},
        tables_named,
        {"visits": 2.0},
    )


def edges_of(graph: ProjectGraph) -> set[tuple[str, str]]:
    return {(each.source, each.target) for each in graph.edges}


def test_lineage_joins_topics_tables_and_outlets() -> None:
    graph = graph_of()

    assert edges_of(graph) == {
        ("topic:visits", "pipeline:web"),
        ("pipeline:web", "table:web.page_hits"),
        ("table:web.page_hits", "table:web.kept"),
        ("table:web.kept", "table:web.by_page"),
        ("pipeline:web", "table:web.bad"),
        ("table:web.by_page", "sink:pages"),
        ("table:web.page_hits", "alert:busy"),
        ("table:web.by_page", "board:now"),
        # What a sink writes is what another pipeline reads.
        ("sink:pages", "topic:pages"),
        ("topic:pages", "pipeline:shop"),
        ("pipeline:shop", "table:shop.sold"),
    }
    assert GraphEdge("topic:visits", "pipeline:web", 40, 2.0) in graph.edges
    details = {each.id: each.detail for each in graph.nodes}
    assert details["table:web.kept"] == "maintained"
    assert details["table:web.by_page"] == "at each read"
    assert not any(each.change for each in graph.nodes)


def test_a_rollout_marks_all_that_it_touches() -> None:
    changed = with_fields(HITS, columns=(*HITS.columns, ("more", "bigint")))
    more = with_fields(HITS, name="more")
    after = with_fields(
        WEB, build="web-2", tables=(changed, KEPT, more, REJECTS_BIRTH),
        views={"by_page": WEB.views["by_page"]},
    )  # fmt: skip
    changes = {each.id: each.change for each in graph_of(after).nodes}

    assert changes == {
        "topic:visits": "",
        "topic:pages": "",
        "pipeline:web": "changed",
        "pipeline:shop": "",
        "table:web.page_hits": "changed",
        "table:web.kept": "replayed",
        "table:web.by_page": "replayed",
        "table:web.more": "new",
        "table:web.bad": "removed",
        "table:shop.sold": "",
        "sink:pages": "reads",
        "alert:busy": "reads",
        "board:now": "reads",
    }
    assert {each.rollout for each in graph_of(after).nodes if each.change} == {4}


def test_an_overlay_replays_no_table() -> None:
    over = with_fields(WEB, build="web-2", tables_of="web-1", alerts=())
    changes = {each.id: each.change for each in graph_of(over).nodes if each.change}

    assert changes == {"pipeline:web": "changed", "alert:busy": "removed"}


def test_a_part_has_what_feeds_a_pipeline() -> None:
    part = part_of_graph(graph_of(), "shop")

    names = {each.id for each in part.nodes}
    assert {"topic:visits", "pipeline:web", "sink:pages", "table:shop.sold"} <= names
    assert not {"alert:busy", "board:now", "table:web.bad"} & names
    with pytest.raises(UsageError) as refused:
        part_of_graph(graph_of(), "sho")
    assert "shop" in str(refused.value.hint)


def test_an_outline_leaves_tables_out() -> None:
    outline = outline_of_graph(graph_of())

    assert {each.kind for each in outline.nodes} == {"topic", "pipeline", "sink", "board"}
    assert ("pipeline:web", "sink:pages") in edges_of(outline)
    assert ("pipeline:web", "board:now") in edges_of(outline)
    assert ("pipeline:web", "pipeline:web") not in edges_of(outline)


def test_a_folded_pipeline_stands_for_its_tables() -> None:
    """Other pipelines keep their tables, and so does what is kept by its id."""
    folded = outline_of_graph(graph_of(), {"web"}, {"alert:busy"})

    nodes = {each.id: each for each in folded.nodes}
    assert "table:shop.sold" in nodes
    assert not nodes["pipeline:shop"].is_folded
    assert not {each for each in nodes if each.startswith("table:web.")}
    assert nodes["pipeline:web"].is_folded
    assert nodes["pipeline:web"].detail == "1 table, 3 views"
    assert ("pipeline:web", "alert:busy") in edges_of(folded)
    heights = {each.node.id: each.height for each in draw_graph(folded).nodes}
    assert heights["pipeline:web"] < heights["pipeline:shop"]


def test_one_node_stands_for_several_pipelines() -> None:
    """Nodes that the pipelines read and feed, and nodes that are kept, stay beside the node."""
    joined = with_joined_pipelines(graph_of(), {"web", "shop"}, {"alert:busy"})

    nodes, edges = {each.id: each for each in joined.nodes}, edges_of(joined)
    assert nodes[JOINED].name == "2 pipelines"
    assert nodes[JOINED].detail == "2 tables, 3 views"
    assert nodes[JOINED].is_folded
    assert not {each for each in nodes if each.startswith(("pipeline:", "table:"))}
    assert {("topic:visits", JOINED), (JOINED, "sink:pages"), (JOINED, "alert:busy")} <= edges
    assert (JOINED, JOINED) not in edges


@pytest.mark.parametrize("lags", [(3, 9), (9, 3), (None, 9)])
def test_an_edge_of_several_has_the_largest_lag(lags: tuple[int | None, int]) -> None:
    names = ("a", "b")
    heads = tuple(GraphNode(f"pipeline:{name}", "pipeline", name) for name in names)
    edges = tuple(GraphEdge("topic:t", head.id, lag) for head, lag in zip(heads, lags, strict=True))
    whole = ProjectGraph((GraphNode("topic:t", "topic", "t"), *heads), edges)

    assert with_joined_pipelines(whole, names).edges == (GraphEdge("topic:t", JOINED, 9),)


def test_a_label_fits_between_two_layers_and_a_folded_text_into_its_node() -> None:
    """A label does not reach back over the node at which its edge begins."""
    counts = "24 tables, 1 view, 2 alerts"
    ends = (
        GraphNode("topic:t", "topic", "t"),
        GraphNode(JOINED, "pipeline", "24 pipelines", detail=counts, is_folded=True),
    )

    def drawn(lag: int) -> DrawnGraph:
        return draw_graph(ProjectGraph(ends, (GraphEdge("topic:t", JOINED, lag),)))

    topic, joined = drawn(1_234_567_890).nodes
    (edge,) = drawn(1_234_567_890).edges
    letters = 6 * len(edge.lag)
    assert topic.x + topic.width < edge.x - letters < edge.x < joined.x
    assert drawn(0).nodes[1].x < joined.x
    assert joined.detail == counts
    assert joined.width > topic.width == WIDTH


def test_a_pipeline_that_is_behind_tells_its_lag_in_its_node() -> None:
    """Its edges have no label of the lag, which other edges would cross."""
    nodes = (
        *(GraphNode(f"topic:{name}", "topic", name) for name in ("t", "u")),
        *(GraphNode(f"pipeline:{name}", "pipeline", name) for name in ("late", "at_work")),
    )
    edges = (
        GraphEdge("topic:t", "pipeline:late", 1200, 2.0),
        GraphEdge("topic:u", "pipeline:late", 51),
        GraphEdge("topic:t", "pipeline:at_work", 40),
    )
    states = {
        "pipeline:late": Health(BEHIND, "warn"),
        "pipeline:at_work": Health("Following", "ok"),
    }

    drawn = draw_graph(ProjectGraph(nodes, edges), states)

    notes = {each.node.name: each.note for each in drawn.nodes if each.note}
    assert notes == {"late": "1,251 behind", "at_work": "Following"}
    assert [(each.rate, each.lag) for each in drawn.edges] == [
        ("2/s", ""),
        ("", ""),
        ("", "40 behind"),
    ]


def test_a_search_shows_what_is_directly_beside() -> None:
    around = nodes_around(graph_of(), {"alert:busy"})

    assert {each.id for each in around.nodes} > {"alert:busy"}
    assert all("alert:busy" in each for each in edges_of(around))
    assert nodes_around(graph_of(), set()).nodes == ()


IDS = [f"topic:{number}" for number in range(14)]


@given(st.sets(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=40))
def test_no_two_nodes_of_a_picture_overlap(ways: set[tuple[str, str]]) -> None:
    """Nodes never overlap, even with cycles; without cycles, each edge leads to the right."""
    nodes = tuple(GraphNode(each, "topic", each) for each in IDS)
    edges = tuple(GraphEdge(*way) for way in sorted(ways) if way[0] != way[1])
    drawn = draw_graph(ProjectGraph(nodes, edges))

    places = {each.node.id: (each.x, each.y) for each in drawn.nodes}
    for one, (x, y) in places.items():
        assert 0 <= x <= drawn.width - WIDTH
        assert 0 <= y <= drawn.height - HEIGHT
        assert not any(
            abs(x - other_x) < WIDTH and abs(y - other_y) < HEIGHT
            for other, (other_x, other_y) in places.items()
            if other != one
        )
    assert len(drawn.edges) == len(edges)
    # A list has each node once, below a node of the layer before it.
    listed = [each.node.id for each in drawn.nodes]
    assert sorted(listed) == sorted(IDS)
    before = [0] * 99
    for each in drawn.nodes:
        assert each.depth == 0 or before[each.depth - 1] > 0
        before[each.depth] += 1
    forward = tuple(each for each in edges if IDS.index(each.source) < IDS.index(each.target))
    without = {each.node.id: each.x for each in draw_graph(ProjectGraph(nodes, forward)).nodes}
    assert all(without[each.source] < without[each.target] for each in forward)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("page_hits", "page_hits"),
        ("carrier_delays_by_month", "carrier_…by_month"),
        ("W" * 40, "WWWWW…WWWW"),
        ("i" * 28, "i" * 28),
        ("名" * 99, "名名名名名…名名名名"),
    ],
)
def test_a_long_name_keeps_begin_and_end(name: str, shown: str) -> None:
    """A shortened name fits into its box, and the title has the full name."""
    (drawn,) = draw_graph(ProjectGraph((GraphNode("a", "table", name),), ())).nodes

    assert (drawn.name, drawn.title) == (shown, f"table {name}")


HOSTILE = (
    EVIL,
    '"]\n  click n0 href "javascript:1"',
    "\x00\x1b[31m",
    "</svg>",
    "\u202ex",
    "名" * 99,
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_never_become_markup(name: str) -> None:
    nodes = (GraphNode("a", "topic", name, detail=name), GraphNode("b", "board", "b", name, name))
    graph = ProjectGraph(nodes, (GraphEdge("a", "b", 3, 0.5),))

    svg = graph_svg(draw_graph(graph), name)
    kinds = {each.tag.rpartition("}")[2] for each in ET.fromstring(svg).iter()}
    assert kinds <= {"svg", "title", "style", "g", "path", "rect", "text"}
    lines = mermaid_text(graph).splitlines()
    assert len(lines) == 1 + 2 + 1 + 3
    assert all(re.fullmatch(r'  n\d\S{1,2}"[\w .,:;#<>-]*"\S{1,2}', each) for each in lines[1:3])
    assert not re.search("<(?!br>)", "".join(lines[1:3]))


def test_a_large_graph_is_drawn_in_no_time() -> None:
    """A graph of a hundred pipelines with ten tables each is drawn quickly."""
    nodes, edges = [], []
    for pipe in range(100):
        nodes += [GraphNode(f"t{pipe}", "topic", "t"), GraphNode(f"p{pipe}", "pipeline", "p")]
        edges.append(GraphEdge(f"t{pipe // 3}", f"p{pipe}"))
        for table in range(10):
            nodes.append(GraphNode(f"{pipe}.{table}", "table", "t", pipeline=f"{pipe}"))
            edges.append(GraphEdge(f"p{pipe}", f"{pipe}.{table}"))
    graph = ProjectGraph(tuple(nodes), tuple(edges))

    assert len(draw_graph(graph).nodes) == 1200
    assert draw_graph(graph) == draw_graph(replace(graph))


# The command and the page, over a world with a history.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("world")
    world = World(made)
    world.lives()
    world.declares_board(
        "now", 'title = "Now"\n[[chart]]\ntitle = "a"\nkind = "table"\nsql = "from by_page"\n'
    )
    return made


@pytest.fixture
def kappa(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kappa:
    monkeypatch.chdir(folder)
    return typist(capsys, monkeypatch)


@pytest.mark.slow
def test_the_command_prints_each_form(kappa: Kappa) -> None:
    listed, mermaid, svg = (
        kappa("graph", *words) for words in ([], ["-o", "mermaid"], ["-o", "svg"])
    )

    assert "topic visits" in listed.out
    assert "replayed by 5" in listed.out
    assert mermaid.out.startswith("flowchart LR\n")
    assert ET.fromstring(svg.out).tag.endswith("svg")
    part = kappa("graph", "webb")
    assert part.code != 0
    assert "did you mean web" in part.err or "web" in part.err


@pytest.mark.slow
def test_the_command_reads_each_birth_once(kappa: Kappa, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def counted(store: Store, build: str) -> Birth:
        read.append(build)
        return read_birth(store, build)

    monkeypatch.setattr(record_cache, "read_birth", counted)
    assert kappa("graph").code == 0

    assert read
    assert sorted(read) == sorted({*read})


def test_a_project_without_a_build_says_so(
    kappa: Kappa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kappa.toml").touch()
    monkeypatch.chdir(tmp_path)

    ended = kappa("graph")

    assert ended.code != 0
    assert "no pipeline has a build yet" in ended.err
    assert "kappa deploy" in ended.err


PIPELINES = """
from kappa import Table, Topic, View, pipeline

CLICKS = Topic("clicks", event="id string")
BY_ID = Table("by_id", keys=("id",))

@pipeline(reads={"c": CLICKS, "v": VISITS}, writes=[BY_ID, View("top", "from by_id")])
def fresh(c, v): ...

@pipeline(reads={"c": CLICKS}, writes=[], name="web")
def served(c): ...
"""


def test_a_pipeline_without_a_build_is_declared(tmp_path: Path) -> None:
    """An undeployed pipeline is shown as declared; its file is parsed, and never imported.

    A file with an error shows none.
    """
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.py").write_text(PIPELINES)
    (tmp_path / "pipelines" / "b.py").write_text("def (")
    status = status_of(WEB)
    graph = project_graph(
        {"web": WEB}, {}, status, {}, tables_named, {}, written_pipelines(tmp_path)
    )

    declared = {each.id: each.detail for each in graph.nodes if not each.is_deployed}
    assert declared == {
        "topic:clicks": "declared",
        "pipeline:fresh": "not deployed",
        "table:fresh.by_id": "not deployed",
        "table:fresh.top": "not deployed",
    }
    assert {each for each in edges_of(graph) if "fresh" in each[1]} == {
        ("topic:clicks", "pipeline:fresh"),
        ("pipeline:fresh", "table:fresh.by_id"),
        ("pipeline:fresh", "table:fresh.top"),
    }
    hrefs = {each.node.id: each.href for each in draw_graph(graph).nodes}
    assert (hrefs["pipeline:fresh"], hrefs["pipeline:web"]) == ("", "/tables#web")
    (tmp_path / "pipelines" / "a.py").write_text(PIPELINES.replace("fresh", "newer"))
    assert [each.name for each in written_pipelines(tmp_path)] == ["newer", "web"]


def test_texts_tell_rates_and_lags() -> None:
    lines = mermaid_text(graph_of()).splitlines()
    rows = {row[1]: row[3] for row in graph_listing(graph_of()).rows if row[0] == "pipeline"}

    assert rows["web"] == "topic visits (2/s, 40 behind)"
    assert any('-->|"2/s, 40 behind"|' in each for each in lines)


def test_the_growth_of_topics_is_measured() -> None:
    """The measurement takes a second at least, and a topic without new records grows by 0."""
    log, now = FakeLog(), iter((5.0, 7.0, 7.0))
    end_rates = begin_rates(log, ["visits", "salaries"], clock=lambda: next(now))  # type: ignore[arg-type]
    log.end = lambda topics: Offsets({each: {0: 1_851 + 8 * (each == "visits")} for each in topics})  # type: ignore[method-assign]

    assert end_rates() == {"visits": 4.0, "salaries": pytest.approx(308.5)}


def test_the_document_names_ids_of_nodes() -> None:
    document = graph_document(graph_of())

    ids = {each["id"] for each in document["nodes"]}
    assert all({each["source"], each["target"]} <= ids for each in document["edges"])
    edge = {"source": "topic:visits", "target": "pipeline:web", "lag": 40, "rate": 2.0}
    assert edge in document["edges"]
