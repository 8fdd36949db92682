"""The dashboard and the alert rules use only names and labels that Kappa's metrics have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from page_world import EVIL, World
from test_page import serving
from typing_in import Kappa, typist

from kappa.declare.sink import SinkBirth
from kappa.replay.status.monitoring import (
    PANELS,
    RULES,
    Panel,
    grafana_dashboard,
    prometheus_rules,
)
from kappa.state.build_status import StepTimes, put_step_times
from kappa.state.drift import Drift, DriftKind, put_drifts
from kappa.state.files.claim import DiskControl
from kappa.state.journal.events import Failed, Staged

pytestmark = pytest.mark.slow
# The functions and words of PromQL in the expressions.
_PROMQL = {
    "absent",
    "and",
    "by",
    "delta",
    "increase",
    "max",
    "min",
    "on",
    "or",
    "predict_linear",
    "rate",
    "sum",
}
_STRING = re.compile(r'"[^"]*"')


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, frozenset[str]]:
    """Returns the names of a platform's metrics, each with the labels of its samples."""
    world = World(tmp_path_factory.mktemp("world"))
    world.goes_live(world.build("web-1", evil="cart", sinks=(SinkBirth("out", "by_page"),)), 1)
    world.append(Staged("web", "web-f", "version", ("new",)))
    world.append(Failed(max(record.number for record in world.journal.after(0)), "no"))
    world.waits(world.build("web-2", evil="cart"), "web-1")
    world.alerts()
    monkey = pytest.MonkeyPatch()
    monkey.setattr(DiskControl, "holder", lambda _: (EVIL, False))
    put_step_times(world.store, "web-1", StepTimes({"wait": 0.25, "read": 0.5}, 3, "then"))
    put_drifts(world.store, "web-1", [Drift(DriftKind.SHARE, "visits", "", "", "", "", "")])
    world.be_up()
    with serving(world) as server:
        told = server.ask("GET", "/metrics").body.decode()
    monkey.undo()
    found = {name: set[str]() for name in re.findall(r"^# TYPE (\w+)", told, re.MULTILINE)}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", told, re.MULTILINE):
        found[name].update(re.findall(r'(\w+)="', labels))
    assert "kappa_disk_free_bytes" in found
    assert 'kappa_rollouts_failed_total{pipeline="web"} 1\n' in told
    assert re.search(r"^kappa_claim\{host=.*\} 0$", told, re.MULTILINE)
    assert re.search(r'^kappa_slice_step_seconds\{.*step="wait"\} 0.25$', told, re.MULTILINE)
    assert re.search(r'^kappa_rollout_waits\{.*build="web-2".*\} 1$', told, re.MULTILINE)
    return {name: frozenset(labels) for name, labels in found.items()}


@pytest.mark.parametrize("query", [each.query for each in (*PANELS, *RULES)])
def test_an_expression_asks_for_metrics_that_exist(
    metrics: Mapping[str, frozenset[str]], query: str
) -> None:
    words = {*re.findall(r"\b[a-z_]+\b", _STRING.sub("", re.sub(r"\[.*?\]", "", query)))}
    names = words & metrics.keys()

    assert names, query
    labels = frozenset[str]().union(*(metrics[name] for name in names))
    assert words - names - _PROMQL <= labels


@pytest.mark.parametrize(
    "panel", [each for each in PANELS if each.legend], ids=lambda each: each.title
)
def test_a_legend_names_labels_that_exist(
    metrics: Mapping[str, frozenset[str]], panel: Panel
) -> None:
    (name,) = metrics.keys() & {*re.findall(r"\w+", panel.query)}

    # A metric without a sample in this world has no labels to compare with.
    assert not metrics[name] or {*re.findall(r"{{(\w+)}}", panel.legend)} <= metrics[name]


def test_rules_are_yaml_with_labels_that_exist(metrics: Mapping[str, frozenset[str]]) -> None:
    (group,) = yaml.safe_load(prometheus_rules())["groups"]

    assert [each["alert"] for each in group["rules"]] == [each.name for each in RULES]
    for rule, each in zip(group["rules"], RULES, strict=True):
        assert rule["expr"] == each.query
        (first, *_) = metrics.keys() & {*re.findall(r"\w+", each.query)}
        labels = {*re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])}
        assert not metrics[first] or labels <= metrics[first]


def test_panels_fill_the_grid_without_overlap() -> None:
    taken = set[tuple[int, int]]()
    for each in json.loads(grafana_dashboard())["panels"]:
        place = each["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("tool", ["grafana", "prometheus"])
def test_the_command_prints_the_file_without_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kappa: Kappa = typist(capsys, monkeypatch)

    assert (
        kappa("attach", tool).out
        == {
            "grafana": grafana_dashboard(),
            "prometheus": prometheus_rules(),
        }[tool]
    )
    refused = kappa("attach", tool, "page_hits")
    assert refused.code == 2
    assert f"hint: kappa attach {tool} > kappa" in refused.err
