"""Computes the positions of a lineage's nodes and edges in a picture. Pure.

The nodes are in layers from left to right. In a narrow window, the page shows the nodes as an
indented list instead. For this list, each node has a depth, and a text that names the nodes that
this node reads.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from urllib.parse import quote

from kappa.replay.page.states import BEHIND, Health
from kappa.replay.status.graph import (
    CHANGED,
    NEW,
    READS,
    REMOVED,
    REPLAYED,
    GraphEdge,
    GraphNode,
    ProjectGraph,
    flow_texts,
)
from kappa.serving.query.render import printable_text

# Pixels of a node, of the room between two layers, and between two nodes of a layer. Five layers
# fit the width of a page without being made smaller.
WIDTH, HEIGHT = 180, 64
# A pipeline that stands for its tables too has no third line, and is as wide as its text.
_FOLDED_HEIGHT, _MOST_WIDTH = 46, 320
_GAP_X, _GAP_Y = 40, 12
_EDGE_Y = 10
_MARGIN = 14
# The pixels beside a text in a node, and of a letter: those of DejaVu Sans, which is wide, in the
# large bold letters of a name. The letters of a detail have less, and those of a label still less.
_BESIDE = 28
_LETTER, _SMALL, _LABEL = 9.4, 0.84, 0.83
# The pixels between a label and the nodes to the left and right.
_BEFORE_LABEL, _AFTER_LABEL = 9, 5
# The room for the shape of a state beside a name.
_MARK = 16
_LETTERS = {
    **dict.fromkeys("iljI.,:;'|!()[] ", 5.3),
    **dict.fromkeys("frt-_/", 6.6),
    **dict.fromkeys("ABCDEGHKNOPQRUVXYZ&", 11.2),
    **dict.fromkeys("mwMW@%", 14.4),
}
# More passes change no picture that was tried.
_PASSES = 6
# In a list, deeper nodes are indented no further, and a node names so many of its sources.
_MOST_DEPTH, _MOST_SOURCES = 8, 4
# What a rollout does to a node.
_TOUCHES = {
    NEW: "new with rollout {}",
    CHANGED: "changes with rollout {}",
    REPLAYED: "computed anew",
    READS: "reads changed rows",
    REMOVED: "leaves with rollout {}",
}
# States that people must see before they see what a rollout changes.
URGENT = frozenset({"bad", "warn"})


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node in a picture: its upper left corner in pixels, its texts, and the address of its page.

    `name`, `detail` and `note` are shortened to fit into the node. `note` is the state of the node,
    the lag of a pipeline that is behind, or the effect of a rollout on the node. `touch` is the
    effect of the rollout in full, and `title` has all texts in full. `width` and `height` are in
    pixels. `depth` is the node's indentation in a list: the number of its layer, up to a maximum.
    `reads` names the nodes that this node reads, with rate and lag if known. `reads` is "" if the
    node reads only the node above it in the list, and neither rate nor lag is known.
    """

    node: GraphNode
    x: int
    y: int
    name: str
    detail: str
    note: str
    touch: str
    title: str
    href: str
    depth: int
    reads: str
    state: Health | None
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge in a picture: the data of an SVG path, and the labels `rate` and `lag`.

    The page writes the rate above the point (`x`, `y`), and the lag below this point. The point is
    near the end of the edge, because many edges may begin at the same node. `lag` is "" if the node
    at the end has the lag in its note. `is_touched` is True if a rollout affects both nodes of the
    edge.
    """

    path: str
    rate: str
    lag: str
    x: int
    y: int
    is_touched: bool


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A picture of a lineage. All sizes are in pixels.

    `nodes` are in the order of a tree: each node comes after one of the nodes that it reads.
    """

    width: int
    height: int
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


@dataclass(frozen=True, slots=True)
class _LayerPlace:
    """The place of a layer in a picture: its left edge and its width, in pixels."""

    left: int
    width: int

    @property
    def right(self) -> int:
        return self.left + self.width


def draw_graph(graph: ProjectGraph, states: Mapping[str, Health] | None = None) -> DrawnGraph:
    """Draws a graph in layers. Each node is to the right of all nodes that it reads.

    If the graph contains a cycle, the last edge of the cycle leads back to the left. Equal graphs
    have equal pictures. `states` maps the ids of nodes to their states.
    """
    nodes, known = {each.id: each for each in graph.nodes}, states or {}
    late = _late_nodes(graph, known)
    depths = _depths(graph)
    # An edge across layers has a place in each of them, so that it passes between the nodes.
    chains = {
        (each.source, each.target): [
            each.source,
            *(
                f"{each.source} > {each.target} > {depth}"
                for depth in range(depths[each.source] + 1, depths[each.target])
            ),
            each.target,
        ]
        for each in graph.edges
    }
    layers: list[list[str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for each in graph.nodes:
        layers[depths[each.id]].append(each.id)
    for chain in chains.values():
        for depth, place in enumerate(chain[1:-1], start=depths[chain[0]] + 1):
            layers[depth].append(place)
    tops = _tops(layers, list(chains.values()), nodes)
    columns = _columns(graph, depths, len(layers), late)
    reads = _source_texts(graph, nodes)
    drawn = tuple(
        _drawn_node(
            each,
            depths[each.id],
            columns[depths[each.id]],
            tops[each.id],
            reads.get(each.id, ()),
            known,
            late.get(each.id),
        )
        for each in _tree_order(graph, depths, tops)
    )
    return DrawnGraph(
        columns[-1].right + _MARGIN if columns else 0,
        round(max((tops[each] + _height(nodes[each]) for each in nodes), default=0)) + _MARGIN,
        drawn,
        tuple(
            _drawn_edge(
                *(each, chains[each.source, each.target], depths, columns, tops, nodes),
                _labels(each, late),
            )
            for each in graph.edges
        ),
    )


def _late_nodes(graph: ProjectGraph, states: Mapping[str, Health]) -> dict[str, int]:
    """Returns the lag of each pipeline whose node tells the lag, in offsets, by the node's id.

    These are the pipelines in the state `BEHIND`. A folded node has no room for its state.
    """
    late = {
        each.id
        for each in graph.nodes
        if each.kind == "pipeline"
        and not each.is_folded
        and each.id in states
        and states[each.id].word == BEHIND
    }
    found: dict[str, int] = {}
    for edge in graph.edges:
        if edge.target in late and edge.lag:
            found[edge.target] = found.get(edge.target, 0) + edge.lag
    return found


def _labels(edge: GraphEdge, late: Collection[str]) -> tuple[str, str]:
    """Returns the labels of an edge: the rate, and the lag unless the node in `late` tells it."""
    rate, lag = flow_texts(edge)
    return rate, "" if edge.target in late else lag


def _columns(
    graph: ProjectGraph, depths: Mapping[str, int], count: int, late: Collection[str]
) -> list[_LayerPlace]:
    """Returns the places of the layers, from left to right.

    A layer is as wide as its widest node. The labels of edges fit between two layers.
    """
    widths, gaps = [WIDTH] * count, [_MARGIN, *[_GAP_X] * (count - 1)][:count]
    for node in graph.nodes:
        at = depths[node.id]
        widths[at] = max(widths[at], _node_width(node))
    for edge in graph.edges:
        label = max(_LABEL * _text_width(each) for each in _labels(edge, late))
        if label:
            at = depths[edge.target]
            gaps[at] = max(gaps[at], ceil(_BEFORE_LABEL + label + _AFTER_LABEL))
    columns, right = list[_LayerPlace](), 0
    for gap, width in zip(gaps, widths, strict=True):
        columns.append(_LayerPlace(right + gap, width))
        right = columns[-1].right
    return columns


def _node_width(node: GraphNode) -> int:
    """Returns the width of a node in pixels. A folded node is as wide as its text."""
    if not node.is_folded:
        return WIDTH
    return max(WIDTH, min(_MOST_WIDTH, _BESIDE + 1 + int(_SMALL * _text_width(node.detail))))


def _drawn_node(
    node: GraphNode,
    depth: int,
    column: _LayerPlace,
    top: float,
    reads: Sequence[str],
    states: Mapping[str, Health],
    lag: int | None,
) -> DrawnNode:
    state = states.get(node.id)
    touch = _TOUCHES[node.change].format(node.rollout) if node.change else ""
    word = "" if state is None else state.word if lag is None else f"{lag:,} behind"
    note = word if state is not None and state.tone in URGENT else touch or word
    if node.is_folded:
        note = ""
    # The note of a pipeline that is rolled out tells of the rollout.
    detail = "" if node.kind == "pipeline" and node.change else node.detail
    kind = "" if node.is_folded else node.kind
    room = column.width - _BESIDE
    more = len(reads) - _MOST_SOURCES
    named = ", ".join(reads[:_MOST_SOURCES])
    return DrawnNode(
        node,
        column.left,
        round(top),
        _shortened(node.name, room if state is None else room - _MARK),
        _shortened(" · ".join(filter(None, (kind, detail))), room / _SMALL),
        _shortened(note, room / _SMALL),
        touch,
        _title(node, state),
        _address(node),
        min(depth, _MOST_DEPTH),
        f"{named} and {more} more" if more > 0 else named,
        state,
        column.width,
        _height(node),
    )


def _height(node: GraphNode | None) -> int:
    """Returns the height of a node in pixels.

    For None, returns the height of the point at which an edge passes through a layer.
    """
    return _EDGE_Y if node is None else _FOLDED_HEIGHT if node.is_folded else HEIGHT


def _source_texts(graph: ProjectGraph, nodes: Mapping[str, GraphNode]) -> dict[str, list[str]]:
    """Returns the names of the nodes that each node reads, by the id of the reading node.

    A name is followed by the rate and the lag, if they are known. A reading node has no entry if it
    reads a single node and neither rate nor lag is known, because the page's list shows this node
    below the node that it reads.
    """
    found: dict[str, list[str]] = {}
    flows = set[str]()
    for edge in graph.edges:
        flow = ", ".join(filter(None, flow_texts(edge)))
        name = printable_text(nodes[edge.source].name)
        found.setdefault(edge.target, []).append(f"{name} ({flow})" if flow else name)
        flows |= {edge.target} if flow else set()
    return {each: texts for each, texts in found.items() if len(texts) > 1 or each in flows}


def _tree_order(
    graph: ProjectGraph, depths: Mapping[str, int], tops: Mapping[str, float]
) -> list[GraphNode]:
    """Returns the nodes in the order of a tree, in which each node comes after its parent.

    The parent is one of the nodes that a node reads in the layer to its left: the node whose
    vertical position is nearest.
    """
    nodes = {each.id: each for each in graph.nodes}
    nearest: dict[str, str] = {}
    for edge in graph.edges:
        if depths[edge.source] != depths[edge.target] - 1:
            continue
        before = nearest.setdefault(edge.target, edge.source)
        wanted = tops[edge.target]
        if abs(tops[edge.source] - wanted) < abs(tops[before] - wanted):
            nearest[edge.target] = edge.source
    below: dict[str | None, list[str]] = {}
    for each in sorted(nodes, key=lambda each: tops[each], reverse=True):
        below.setdefault(nearest.get(each), []).append(each)
    found, open_ = list[GraphNode](), below.get(None, [])
    while open_:
        found.append(nodes[node := open_.pop()])
        open_ += below.get(node, ())
    return found


def _depths(graph: ProjectGraph) -> dict[str, int]:
    """Returns the layer of each node, by id. The first layer is 0.

    The layer of a node is one more than the highest layer of the nodes that it reads.
    """
    before: dict[str, list[str]] = {each.id: [] for each in graph.nodes}
    for edge in graph.edges:
        before[edge.target].append(edge.source)
    found: dict[str, int] = {}
    underway: set[str] = set()

    def settle(start: str) -> None:
        open_ = [start]
        while open_:
            node = open_[-1]
            underway.add(node)
            left = [each for each in before[node] if each not in found and each not in underway]
            if left:
                open_.append(left[0])
                continue
            open_.pop()
            underway.discard(node)
            known = (found[each] for each in before[node] if each in found)
            found.setdefault(node, max(known, default=-1) + 1)

    for each in graph.nodes:
        if each.id not in found:
            settle(each.id)
    return found


def _tops(
    layers: Sequence[list[str]], chains: Sequence[Sequence[str]], nodes: Mapping[str, GraphNode]
) -> dict[str, float]:
    """Returns the upper edge of each place in pixels, so that connected places are close together.

    A place is a node, or the point at which an edge passes through a layer. The result maps the id
    of each place to its upper edge.
    """
    sides: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for chain in chains:
        for left, right in pairwise(chain):
            sides[0].setdefault(right, []).append(left)
            sides[1].setdefault(left, []).append(right)

    def height(place: str) -> int:
        return _height(nodes.get(place))

    middle: dict[str, float] = {}
    for layer in layers:
        at = 0.0
        for each in layer:
            middle[each] = at + height(each) / 2
            at += height(each) + _GAP_Y
    for number_of_pass in range(_PASSES):
        beside = sides[number_of_pass % 2]
        for layer in layers if number_of_pass % 2 == 0 else reversed(layers):
            wanted = {
                each: sum(middle[other] for other in beside[each]) / len(beside[each])
                if each in beside
                else middle[each]
                for each in layer
            }
            layer.sort(key=lambda each: wanted[each])
            _settle_layer(layer, wanted, middle, height)
    least = min((middle[each] - height(each) / 2 for each in middle), default=0.0)
    return {each: middle[each] - height(each) / 2 - least + _MARGIN for each in middle}


def _settle_layer(
    layer: Sequence[str],
    wanted: Mapping[str, float],
    middle: dict[str, float],
    height: Callable[[str], int],
) -> None:
    """Moves the places of a layer close to their `wanted` centers, without changing their order.

    A place is a node, or the point at which an edge passes through the layer. A center is a
    vertical position in pixels. Places that would overlap form a block; the block is placed at the
    mean of their wanted centers. The function writes the new centers into `middle`.
    """
    blocks: list[tuple[float, float, list[str]]] = []
    for each in layer:
        top, size, members = wanted[each] - height(each) / 2, float(height(each) + _GAP_Y), [each]
        while blocks and blocks[-1][0] + blocks[-1][1] > top:
            above_top, above_size, above = blocks.pop()
            share = len(above) / (len(above) + len(members))
            top = above_top * share + (top - above_size) * (1 - share)
            size, members = above_size + size, [*above, *members]
        blocks.append((top, size, members))
    for top, _, members in blocks:
        at = top
        for each in members:
            middle[each] = at + height(each) / 2
            at += height(each) + _GAP_Y


def _drawn_edge(
    edge: GraphEdge,
    chain: Sequence[str],
    depths: Mapping[str, int],
    columns: Sequence[_LayerPlace],
    tops: Mapping[str, float],
    nodes: Mapping[str, GraphNode],
    labels: tuple[str, str],
) -> DrawnEdge:
    def level(place: str) -> int:
        return round(tops[place] + _height(nodes.get(place)) / 2)

    x, y = columns[depths[edge.source]].right, level(edge.source)
    path = f"M{x} {y}"
    for depth, place in enumerate(chain[1:], start=depths[edge.source] + 1):
        is_last = place == edge.target
        column = columns[depths[place] if is_last else depth]
        to_x, to_y = column.left, level(place)
        bend = max(_GAP_X // 2, abs(to_x - x) // 2)
        path += f"C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
        x, y = to_x, to_y
        if not is_last:
            x = column.right
            path += f"H{x}"
    return DrawnEdge(
        path,
        *labels,
        x - _AFTER_LABEL,
        y,
        bool(nodes[edge.source].change and nodes[edge.target].change),
    )


def _title(node: GraphNode, state: Health | None) -> str:
    name = node.name if node.is_folded else f"{node.kind} {node.name}"
    detail = f", {node.detail}" if node.detail else ""
    touched = f": {node.change} by rollout {node.rollout}" if node.change else ""
    told = "" if state is None else f". {': '.join(filter(None, (state.word, state.why)))}"
    return printable_text(f"{name}{detail}{touched}{told}")


def _address(node: GraphNode) -> str:
    """Returns the address of a node's page, or "" for a node that is declared but not deployed.

    If the node does not serve yet, the address leads to the page of the node's rollout.
    """
    if not node.is_deployed:
        return ""
    if node.rollout is not None and (node.kind == "pipeline" or node.change == "new"):
        return f"/rollouts/{node.rollout}"
    name = quote(node.name, safe="")
    match node.kind:
        case "topic":
            return f"/topics/{name}"
        case "pipeline":
            return f"/tables#{name}"
        case "alert":
            return "/alerts"
        case "board":
            return f"/boards/{name}"
        case "sink":
            return f"/tables#{quote(node.pipeline, safe='')}"
        case _:
            return f"/tables/{quote(node.pipeline, safe='')}/{name}"


def _shortened(text: str, room: float) -> str:
    """Shortens a text to a width of `room` pixels by replacing its middle with an ellipsis."""
    signs = list(_shown_text(text))
    widths = [_letter_width(each) for each in signs]
    if sum(widths) <= room:
        return "".join(signs)
    left, right, used = 0, len(signs), _LETTER
    # The longer side is the begin: names of a family differ at the end.
    while left < right:
        at = left if left <= len(signs) - right else right - 1
        if (used := used + widths[at]) > room:
            break
        left, right = (left + 1, right) if at == left else (left, right - 1)
    return f"{''.join(signs[:left])}…{''.join(signs[right:])}"


def _shown_text(text: str) -> str:
    return " ".join(printable_text(text).split())


def _text_width(text: str) -> float:
    return sum(map(_letter_width, _shown_text(text)))


def _letter_width(sign: str) -> float:
    if unicodedata.east_asian_width(sign) in "WF":
        return 14.4
    return _LETTERS.get(sign, _LETTER)
