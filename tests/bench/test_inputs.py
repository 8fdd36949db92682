"""The same size gives the same events, and the oracle finds every wrong row."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bids import Input, bids
from cells import CELLS, CONSUMED, GROUPS, PARTITIONS, TASKS, WAYS, WINDOW_MS, Cell
from figures import Warm
from kappa_job import BUILD, KappaJob, warm_of
from oracle import Oracle
from rivals import Attempt, every_rival, read_parquet

from kappa.kafka.producer import ProducedRecord
from kappa.state.build import read_birth
from kappa.state.offsets import Offsets
from kappa.state.store import Store

pytestmark = pytest.mark.slow

EVENTS, KEYS = 600, 7
FIELDS = ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"]


def events() -> list[ProducedRecord]:
    return list(bids(0, EVENTS, KEYS))


def given(cell: Cell) -> Input:
    return Input(
        cell.topic, "id", Offsets({cell.topic: dict.fromkeys(range(PARTITIONS), 1)}), cell.events, 0
    )


def test_the_same_size_is_the_same_log() -> None:
    assert events() == events()
    assert list(bids(100, 200, KEYS)) == events()[100:200]


def test_a_bid_has_seven_fields_and_its_bidder_as_key() -> None:
    found = [(record, json.loads(record.value or b"")) for record in events()]

    assert all(list(bid) == FIELDS for _, bid in found)
    assert all(
        record.key == str(bid["bidder"]).encode() and record.timestamp_ms == bid["dateTime"]
        for record, bid in found
    )
    assert {bid["bidder"] for _, bid in found} == set(range(KEYS))
    assert 200 < sum(len(record.value or b"") for record, _ in found) / EVENTS < 210


def oracle(folder: Path, task: str) -> tuple[Oracle, list[dict[str, Any]]]:
    """Returns an oracle for a log that was consumed before, and the bids in the log's order."""
    cell = Cell("small", task, EVENTS, KEYS, 1, ())
    found = [
        {
            **json.loads(record.value or b""),
            "partition": int(record.key or b"") % PARTITIONS,
            "offset": number,
            "bytes": len(record.value or b""),
            "value": (record.value or b"").decode(),
        }
        for number, record in enumerate(events())
    ]
    raw = pa.Table.from_pylist(found).select(["partition", "offset", "bytes", "value"])
    (folder / f"{cell.topic}.id").mkdir()
    pq.write_table(raw, folder / f"{cell.topic}.id" / "raw.parquet")
    return Oracle("nowhere:1", given(cell), cell, folder, print), found


def stored(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return read_parquet([str(path)])


def totals(found: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    prices: dict[int, list[int]] = defaultdict(list)
    for bid in found:
        prices[bid["bidder"]].append(bid["price"])
    return [
        {
            "highest": max(own),
            "bidder": bidder,
            "bids": len(own),
            "total": sum(own),
            "lowest": min(own),
        }
        for bidder, own in prices.items()
    ]


def test_totals_are_what_python_computes_and_every_kind_of_wrong_row_is_seen(
    tmp_path: Path,
) -> None:
    judge, found = oracle(tmp_path, "totals")
    right = totals(found)

    def verdict(rows: Sequence[dict[str, Any]]) -> str | None:
        return judge.differences({"totals": stored(tmp_path / "found.parquet", rows)})

    assert verdict(right[::-1]) is None
    assert verdict([{**right[0], "total": right[0]["total"] + 1}, *right[1:]]) is not None
    assert verdict(right[1:]) == (
        "table totals lacks 1 rows and has 0 that it should not have, missing "
        f"{tuple(right[0][name] for name in ('bidder', 'bids', 'total', 'lowest', 'highest'))}"
    )
    assert verdict([right[0], *right]) is not None
    assert (verdict([{**row, "total": "much"} for row in right]) or "").startswith(
        "table totals cannot be read"
    )
    assert "cannot be read" in (
        judge.differences({"totals": read_parquet([str(tmp_path / "nothing.parquet")])}) or ""
    )
    # A table that was never written has no files.
    assert (judge.differences({"totals": read_parquet([])}) or "").startswith(
        f"table totals lacks {len(right)} rows and has 0 that it should not have"
    )


def by_window(found: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    prices: dict[tuple[int, int], list[int]] = defaultdict(list)
    for bid in found:
        prices[bid["bidder"], bid["dateTime"] // WINDOW_MS * WINDOW_MS].append(bid["price"])
    return [
        {"bidder": bidder, "began": began, "bids": len(own), "total": sum(own)}
        for (bidder, began), own in prices.items()
    ]


def newest(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key = {bid["bidder"]: bid for bid in found}
    return [{name: bid[name] for name in FIELDS} for bid in by_key.values()]


def in_euros(found: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    return [
        {name: bid[name] for name in ("auction", "bidder")}
        | {"euros": bid["price"] * 908 // 1000, "ms": bid["dateTime"]}
        for bid in found
    ]


@pytest.mark.parametrize(
    ("task", "table", "of"),
    [
        ("projection", "euros", in_euros),
        ("windows", "windows", by_window),
        ("latest", "latest", newest),
    ],
)
def test_other_tasks_are_what_python_computes_too(
    task: str, table: str, of: Any, tmp_path: Path
) -> None:
    judge, found = oracle(tmp_path, task)
    right = of(found)

    assert judge.differences({table: stored(tmp_path / "right.parquet", right[::-1])}) is None
    for wrong in ([{**right[0], "bidder": 99}, *right[1:]], right[1:]):
        assert judge.differences({table: stored(tmp_path / "wrong.parquet", wrong)}) is not None


def test_who_only_consumes_must_have_seen_all_records_and_bytes(tmp_path: Path) -> None:
    judge, found = oracle(tmp_path, "totals")
    by_partition: dict[int, list[int]] = defaultdict(list)
    for bid in found:
        by_partition[bid["partition"]].append(bid["bytes"])
    right = [
        {"partition": partition, "records": len(own), "bytes": sum(own)}
        for partition, own in by_partition.items()
    ]

    (table,) = CONSUMED
    assert judge.differences({table: stored(tmp_path / "right.parquet", right)}) is None
    right[0]["bytes"] -= 1
    assert judge.differences({table: stored(tmp_path / "wrong.parquet", right)}) is not None


def test_sessions_are_what_the_pipelines_own_step_makes_of_each_key_in_order(
    tmp_path: Path,
) -> None:
    judge, found = oracle(tmp_path, "sessions")
    cell = Cell("small", "sessions", EVENTS, KEYS, 1, ())
    text = cell.fill(TASKS["sessions"].pipeline)
    (begin,) = (match.start() for match in re.finditer("^GAP_MS", text, re.MULTILINE))
    declared: dict[str, Any] = {}
    exec(text[begin : text.index("@pipeline")], declared)
    states: dict[int, dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(("began", "ended", "bids", "total"))
    )
    closed = [
        session for bid in found for session in declared["follow"](states[bid["bidder"]], bid)
    ]
    still_open = [{"bidder": bidder, **state} for bidder, state in states.items()]

    assert len(closed) > KEYS
    assert max(session["bids"] for session in closed) > 3
    tables = {
        "sessions": stored(tmp_path / "s.parquet", closed),
        "open_sessions": stored(tmp_path / "o.parquet", still_open),
    }
    assert judge.differences(tables) is None
    doubled = stored(tmp_path / "s.parquet", [*closed, closed[0]])
    assert judge.differences({**tables, "sessions": doubled}) is not None


@pytest.mark.parametrize(
    ("task", "way"),
    [*((task, "") for task in TASKS), *((way.task, name) for name, way in WAYS.items())],
)
def test_kappa_is_given_a_build_with_the_tables_that_are_compared(
    task: str, way: str, tmp_path: Path
) -> None:
    cell = Cell("small", task, EVENTS, KEYS, 1, ())

    command = KappaJob(way=way).prepare(Attempt(cell, given(cell), "nowhere:1", tmp_path))

    birth = read_birth(Store(tmp_path / ".kappa"), BUILD)
    assert {table.name for table in birth.tables} == {*TASKS[task].wanted, "rejects"}
    assert birth.topic_ids == {cell.topic: "id"}
    assert json.loads(command.arguments[2]) == given(cell).offsets.plain()


def test_the_first_slice_is_not_warm() -> None:
    warm = warm_of([(100, 1), (100, 50), (100, 100)])

    assert warm is not None
    assert (warm.events, warm.seconds) == (200, 3.0)
    # A small slice at the beginning is not the first large one.
    assert warm_of([(3, 1), (100, 1), (90, 45), (100, 100)]) == Warm(190, 3.0)
    assert warm_of([(100, 1)]) is None
    assert warm_of([]) is None


def test_every_cell_has_a_task_and_rivals_that_do_it() -> None:
    rivals = every_rival()

    assert {name for group in GROUPS.values() for name in group} == set(CELLS)
    assert all(cell.task in rivals[name].tasks for cell in CELLS.values() for name in cell.rivals)
