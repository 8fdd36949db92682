"""Laws of `kappa tables TABLE`: the columns, files, writer and readers of one table."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from served import PLANES, ROWS_OF_PLANES, Platform
from typing_in import Kappa, typist

from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.serving.query.pin.catalog import pin_served
from kappa.state.build import TopicBirth, put_birth, read_birth
from kappa.state.build_status import ViewCost, put_view_costs
from kappa.state.store import Store
from kappa.state.table import TableBirth

HITS = TableBirth(
    "page_hits",
    (("page", "string"), ("hits", "bigint"), ("seen", "timestamp")),
    keys=("page",),
    fold={"hits": ("count", None), "seen": ("max", "at")},
    checks=("hits > 0",),
)
ROWS = pa.table(
    {"page": ["/", "/about"], "hits": [3, 4], "seen": pa.array([1, 2], pa.timestamp("us", "UTC"))}
)
BOARD = """
title = "Web"
[[chart]]
title = "Hits"
kind = "number"
sql = "select sum(hits) from page_hits"
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "web.toml").write_text(BOARD)
    (tmp_path / "boards" / "other.toml").write_text(BOARD.replace("page_hits", "planes"))
    (tmp_path / "boards" / "broken.toml").write_text("[[")
    store = Store(tmp_path / ".kappa")
    Platform(store).serve("web", {HITS: ROWS}, {"busy": "from page_hits where hits > 3"})
    birth = replace(
        read_birth(store, "web-1"),
        topics=(TopicBirth("visits", "t1", "retained", 1),),
        sinks=(SinkBirth("web.hits", "page_hits"), SinkBirth("web.other", "rejects")),
        alerts=(AlertBirth("many", "page_hits", "page"),),
    )
    store.delete("builds/web-1/birth.json")
    put_birth(store, birth)
    Platform(store).serve("flights", {PLANES: ROWS_OF_PLANES})
    return store


@pytest.fixture
def run(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Kappa:
    monkeypatch.chdir(tmp_path)
    return partial(typist(capsys, monkeypatch), "tables")


def test_a_table_is_described_for_people(run: Kappa) -> None:
    code, out, err = run("page_hits")
    head, _, columns = out.partition("\n\n")

    assert (code, err) == (0, "")
    kind, rows, *facts = head.splitlines()
    assert kind == "table page_hits of pipeline web, build web-1, Delta version 0"
    assert rows.startswith("2 rows, 1 file, ")
    assert facts == [
        "one row for each page",
        "written by pipeline web from topic visits",
        "read by view busy; the sink to topic web.hits; alert many; board web",
        "checked before each promote: hits > 0",
    ]
    assert [line.partition(" not known")[0].split() for line in columns.splitlines()[2:]] == [
        ["page", "varchar", "key"],
        ["hits", "bigint", "count()"],
        ["seen", "timestamp", "with", "time", "zone", "max(at)"],
    ]


def test_a_table_is_described_for_machines(run: Kappa, store: Store) -> None:
    found = json.loads(run("web.page_hits", "-o", "json")[1])

    assert found["table"] == "page_hits"
    assert (found["rows"], found["files"], found["keys"]) == (2, 1, ["page"])
    assert found["bytes"] == sum(
        path.stat().st_size for path in Path(found["path"]).glob("*.parquet")
    )
    # Nothing is known of a build that an older Kappa has made.
    hits = {"name": "hits", "type": "bigint", "is": "count()", "from": None}
    assert found["columns"][1] == hits
    assert found["read_by"] == {
        "views": ["busy"],
        "sinks": ["web.hits"],
        "alerts": ["many"],
        "boards": ["web"],
        "processes": [],
    }


def test_a_process_that_pins_it_is_a_reader(run: Kappa, store: Store) -> None:
    with pin_served(store, lease_seconds=60.0):
        out = run("page_hits")[1]

    assert f", process {os.getpid()}, now" in out


def test_a_view_has_its_query_and_no_files(run: Kappa) -> None:
    out = run("busy")[1]

    assert out.startswith("view busy of pipeline web, build web-1\n1 row\n")
    assert "written by pipeline web from its query\n" in out
    assert "the query:\nfrom page_hits where hits > 3\n" in out


def test_the_last_cost_of_a_maintained_view_is_told(run: Kappa, store: Store) -> None:
    cost = ViewCost("by touched keys", 9, 2, 0.012, "2026-01-31T14:00:00.000+00:00")
    put_view_costs(store, "web-1", {"page_hits": cost})

    assert f"last {cost.text}\n" in run("page_hits")[1]
    found = json.loads(run("page_hits", "-o", "json")[1])
    assert (found["cost"]["rows"], found["cost"]["seconds"]) == (2, 0.012)
    assert "cost" not in run("busy")[1]


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("page_hit", "no pipeline serves a table page_hit", "did you mean page_hits?"),
        ("rejects", "2 pipelines serve a table rejects", "flights.rejects, web.rejects"),
    ],
)
def test_a_wrong_name_gets_the_right_ones(run: Kappa, name: str, error: str, hint: str) -> None:
    code, out, err = run(name)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}\nhint: ")
    assert hint in err
