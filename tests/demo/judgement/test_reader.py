"""Laws of the reader: its query fits the tree's pipeline, and it detects mixed answers."""

from __future__ import annotations

import runpy
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from births import make_birth
from deltalake import write_deltalake
from house import HOUSE
from served import serve_build

from demo.edit import edited
from demo.judgement.reader import look
from demo.judgement.verdict import Verdict, after_answer
from kappa.base.errors import UsageError
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_type
from kappa.declare.values.tally import Tally
from kappa.state.build import put_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import table_births

BUILD = "flights-1"
HOUR = datetime(2013, 2, 9, 13, tzinfo=UTC)
# Three flights, two of them cancelled. They were on time, says version 1.
ON_TIME = {1: 3, 2: 1}
ROWS: dict[str, list[dict[str, Any]]] = {
    "departures": [
        {"origin": "EWR", "hour": HOUR, "flights": 2, "departed": 1, "miles": 9},
        {"origin": "JFK", "hour": HOUR, "flights": 1, "departed": 0, "miles": None},
    ],
    "airlines": [
        {"carrier": "UA", "name": "United", "_deleted": False}
        | {"_log_time": 1, "_partition": 0, "_offset": 0}
    ],
    "rejects": [{"topic": "flights", "partition": 1, "offset": 1, "reason": "no_json"}],
}
NUMBERS = ("dep_time", "on_time", "cancelled", "dep_delay")
OUTPUTS = {
    "delays": {"carrier": "string", "day": "date", **dict.fromkeys(NUMBERS, "int")},
    "departures": {"origin": "string", "hour": "timestamp", "dep_time": "int", "distance": "int"},
}
TALLIES = {0: Tally(decoded=2), 1: Tally(decoded=1, rejected=1)}


def serve(
    store: Store, tallies: dict[int, Tally], *, version: int = 1, delays_of: int | None = None
) -> None:
    """Makes a version serve; with `delays_of`, its table `delays` is that of the other version."""
    pipeline = declared(store.folder, version)
    returned = {
        table: {name: parse_type(kind) for name, kind in columns.items()}
        for table, columns in OUTPUTS.items()
    }
    births = table_births(pipeline, returned)
    views = {view.name: view.sql for view in pipeline.views}
    put_birth(store, make_birth(BUILD, births, pipeline="flights", views=views))
    for table in births:
        write_deltalake(
            table_path(store, BUILD, table.name), written(table, ON_TIME[delays_of or version])
        )
    versions = dict.fromkeys((table.name for table in births), 0)
    at = Offsets({"flights": {0: 2, 1: 2}})
    Frontiers(store, BUILD).publish(
        Frontier(1, BUILD, 1, at, versions, "", tally={"flights": tallies})
    )
    serve_build(store, "flights", BUILD)


def declared(folder: Path, version: int) -> Pipeline:
    text = (HOUSE / "pipelines" / "flights.py").read_text(encoding="utf-8")
    file = folder / "flights.py"
    file.write_text(edited(text) if version == 2 else text, encoding="utf-8")
    found = runpy.run_path(str(file))["flights"]
    assert isinstance(found, Pipeline)
    return found


def written(table: TableBirth, on_time: int) -> pa.Table:
    delays = {"carrier": "UA", "day": date(2013, 2, 9), "flights": 3, "departed": 1}
    delays |= {"on_time": on_time, "cancelled": 2, "delay_minutes": 4, "worst_delay": 4}
    rows = [delays] if table.name == "delays" else ROWS.get(table.name, [])
    return pa.Table.from_pylist(rows, arrow_schema(table.columns))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_tables_view_and_frontier_that_count_the_same_are_no_mixed_answer(
    store: Store, version: int
) -> None:
    serve(store, TALLIES, version=version)

    seen = look(store)

    assert (seen.generation, seen.build) == (1, BUILD)
    assert seen.flights == {"delays": 3, "departures": 3, "carriers": 3, "frontier": 3}
    assert seen.cancelled == {"delays": 2, "departures": 2}
    assert after_answer(Verdict(), replace(seen, at=0.0), seen).clean


@pytest.mark.parametrize(("version", "other"), [(1, 2), (2, 1)])
def test_a_table_of_the_other_version_at_equal_offsets_is_a_mixed_answer(
    store: Store, version: int, other: int
) -> None:
    serve(store, TALLIES, version=version, delays_of=other)

    seen = look(store)

    assert seen.foreign == 1
    assert after_answer(Verdict(), None, seen).mixed == 1


def test_a_frontier_that_counts_otherwise_is_a_mixed_answer(store: Store) -> None:
    serve(store, {0: Tally(decoded=2), 1: Tally(decoded=2)})

    assert after_answer(Verdict(), None, look(store)).mixed == 1


def test_where_nothing_serves_there_is_no_answer(store: Store) -> None:
    with pytest.raises(UsageError, match="delays"):
        look(store)
