"""Laws of the status: how far a build is behind the log, and which records readers lack."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from births import make_birth
from journals import staged
from msgspec import structs
from near_ends import born
from served import Platform

from kappa.code.fingerprint import SEMANTICS
from kappa.commands.app import run_command
from kappa.declare.values.arrow import arrow_schema
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.supervisor_report import SupervisorReport
from kappa.replay.status.metrics import MetricFacts, metrics_text
from kappa.replay.status.status import HeldBack, held_back, observe_status
from kappa.replay.status.status_cache import moving_parts
from kappa.replay.status.status_text import status_heading, status_listing
from kappa.serving.query.overflows import count_overflows
from kappa.state.build import Base, TopicBirth, folder_of_build, put_birth, read_birth
from kappa.state.build_status import (
    DECODED,
    ViewCost,
    put_view_costs,
    read_counter,
    watch_slice,
)
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.table import TableBirth

FLIGHTS = Offsets({"flights": {0: 40, 1: 7}})
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def offsets(first: int, second: int) -> Offsets:
    return Offsets({"flights": {0: first, 1: second}})


@dataclass
class Ended:
    """A log with these ends, for readers of committed records and for readers of all records."""

    committed: Offsets
    high: Offsets

    def end(self, topics: Iterable[str]) -> Offsets:
        return self.committed.only(set(topics))

    def high_watermark(self, topics: Iterable[str]) -> Offsets:
        return self.high.only(set(topics))


def born_at_frontier(store: Store, build: str, pipeline: str = "flights", **given: Any) -> None:
    """Makes a build of two partitions that has folded all records that it may read."""
    born = {"topics": (TopicBirth("flights", "id", "retained", 2),), "semantics": SEMANTICS}
    origin = {"flights": {"0": 0, "1": 0}}
    put_birth(store, make_birth(build, pipeline=pipeline, origin=origin, **born, **given))
    Frontiers(store, build).publish(Frontier(1, build, 1, FLIGHTS, {}, "2026-01-01T00:00:00Z"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Makes a store with a candidate that has folded all records that it may read."""
    store = Store(tmp_path)
    born_at_frontier(store, "b")
    Journal(store).append(1, staged("b"))
    return store


def told(store: Store, log: Ended) -> tuple[int | None, str]:
    status = observe_status(store, log)
    listing = status_listing(status, MIDNIGHT)
    return status.builds[0].lag, str(listing.row_objects()[0]["note"])


def test_what_an_open_transaction_holds_back_is_a_part_of_the_lag_and_said(store: Store) -> None:
    log = Ended(FLIGHTS, Offsets({"flights": {0: 40, 1: 1_207}, "others": {0: 5}}))
    lag, note = told(store, log)
    assert lag == 1_200
    transaction = "held back by a transaction that is open since offset 7"
    assert note == f"1,200 offsets of flights partition 1 are {transaction}"


def test_growing_log_has_no_open_transactions(store: Store) -> None:
    # The end was asked for after the high watermark.
    assert told(store, Ended(offsets(44, 7), offsets(42, 7))) == (4, "")


@contextmanager
def refusing() -> Iterator[int]:
    """Yields a port on which nobody listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield nobody.getsockname()[1]


@contextmanager
def silent() -> Iterator[int]:
    """Yields a port that accepts connections but never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def unreached() -> Iterator[int]:
    """Yields a port that neither accepts nor refuses connections, as behind a broken network."""
    with socket.socket() as full, ExitStack() as connections:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):
            waiting = connections.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("away", [refusing, silent, unreached])
def test_without_a_broker_a_status_shows_all_else(
    store: Store,
    away: Callable[[], AbstractContextManager[int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Within seconds, the status reports that no broker answers, and shows everything else."""
    project = store.local.folder
    with away() as port:
        settings = f'root = "."\n[kafka]\nbootstrap_servers = "127.0.0.1:{port}"\n'
        (project / "kappa.toml").write_text(settings, encoding="utf-8")
        began = time.monotonic()
        assert run_command(["--project", str(project), "status"]) == 0
        took = time.monotonic() - began

    # It asks for three seconds; the rest is for a busy machine.
    assert took < 15
    told = capsys.readouterr().out
    assert f"no Kafka broker answers at 127.0.0.1:{port}" in told
    assert "candidate" in told


def test_what_is_read_of_a_long_slice_is_in_state_note_and_answer(store: Store) -> None:
    end = offsets(40, 1_007)
    tasks = store.path(f"builds/b/{DECODED}/0")
    tasks.mkdir(parents=True)
    with watch_slice(store, "b", Slice(1, 0, FLIGHTS, end), 2).step("read"):
        read_counter(tasks, "0")(500)
        status = observe_status(store, Ended(end, end))

    (row,) = status_listing(status, MIDNIGHT).row_objects()
    assert (row["rollout"], row["folded"], row["state"]) == (1, 47, "replaying, 52 % read")
    assert row["note"] == "slice 1 of 2: 500 of 1,000 records read"
    counts = {"number": 1, "of": 2, "records": 1_000, "read": 500, "step": "read"}
    assert row["slice"] == {**counts, "text": row["note"]}
    # The page is asked for again when more is read.
    assert moving_parts(status.builds[0]) != moving_parts(replace(status.builds[0], slice=None))


@pytest.mark.parametrize(("end", "age"), [(7, 0.0), (8, 3600.0)])
def test_build_of_a_resting_topic_is_fresh(store: Store, end: int, age: float) -> None:
    log = offsets(40, end)

    status = observe_status(store, Ended(log, log))

    assert status.builds[0].age_seconds(MIDNIGHT.replace(hour=1)) == age


def test_the_rows_of_a_build_that_has_rested_are_as_old_as_its_waking() -> None:
    published, woken = (MIDNIGHT.replace(hour=hour) for hour in (1, 9))
    woken_at = dict.fromkeys("wr", woken.isoformat())
    underway = SupervisorReport(resting=("r",), woken=woken_at)

    assert underway.fresh_at("w", published) == woken
    assert underway.fresh_at("w", woken + timedelta(1)) == woken + timedelta(1)
    assert underway.fresh_at("other", published) == published
    assert underway.fresh_at("w", None) is None
    now = datetime.now(UTC)
    assert underway.fresh_at("r", published) >= now


def test_the_age_of_a_build_is_that_of_its_frontier_where_no_broker_answers(store: Store) -> None:
    status = observe_status(store, None)

    assert status.builds[0].age_seconds(MIDNIGHT.replace(hour=1)) == 3600.0


def test_branchs_share_is_of_its_jobs_records(store: Store) -> None:
    """A branch's share counts the records of its job; its lag and count those of its tables."""
    start = {"flights": {"0": 30, "1": 7}}
    born_at_frontier(store, "c", "branched", base=Base("a", "v0", start, 3, start))
    Journal(store).append(2, staged("c", pipeline="branched"))

    status = observe_status(store, Ended(offsets(70, 7), FLIGHTS))

    found = {each.build: (each.folded, each.lag, each.read) for each in status.builds}
    assert found == {"b": (47, 30, (47, 77)), "c": (47, 30, (10, 40))}
    states = [row["state"] for row in status_listing(status, MIDNIGHT).row_objects()]
    assert states == ["replaying, 25 % read", "replaying, 61 % read"]


def test_each_partition_is_held_back_by_itself() -> None:
    first, second = Offsets({"a": {0: 3, 1: 4}}), Offsets({"a": {0: 3, 1: 6}, "b": {2: 1}})
    assert held_back(first, second) == (HeldBack("a", 1, 4, 2), HeldBack("b", 2, 0, 1))


def test_overflows_are_in_status_and_metrics(store: Store, tmp_path: Path) -> None:
    table, served = born("n"), Store(tmp_path / "served")
    wide = [("a", 2**63, None, True), ("b", 1, 1, False), (None, -(2**63) - 1, None, True)]
    names = ("k", "_n_total_sum", "n_total", "n_total_overflow")
    found = [dict(zip(names, each, strict=True)) for each in wide]
    rows = pa.Table.from_pylist(found, arrow_schema(table.columns))
    Platform(served).serve("totals", {table: rows})

    status = observe_status(store, None)
    seen = replace(status, builds=(replace(status.builds[0], overflows=count_overflows(served)),))

    (build,) = status_listing(seen, MIDNIGHT).row_objects()
    assert build["overflows"] == [{"table": "t", "column": "n_total", "rows": 2}]
    assert "n_total does not fit its type in 2 rows of table t" in build["note"]
    facts = MetricFacts(current_state(store), seen, {}, {}, supervised=False)
    told = metrics_text(facts, MIDNIGHT)
    assert 'kappa_overflowed_rows{pipeline="totals",table="t",column="n_total"} 2' in told


def test_arrays_that_are_cut_are_counted_in_status(store: Store, tmp_path: Path) -> None:
    """Cut arrays are counted. An array with its declared number of values does not count."""
    columns = (("k", "string"), ("s", "array<string>"), ("s_overflow", "boolean"))
    cut = (*columns, ("_s_cut", "boolean"))
    table = TableBirth("t", cut, ("k",), {"s": ("set", "s")}, options={"s": {"limit": 2}})
    served = Store(tmp_path / "served")
    rows = pa.Table.from_pylist(
        [
            {"k": "a", "s": ["1"], "s_overflow": True, "_s_cut": True},
            {"k": "b", "s": ["1", "2"], "s_overflow": True, "_s_cut": False},
            {"k": None, "s": [], "s_overflow": False, "_s_cut": False},
        ],
        arrow_schema(table.columns),
    )
    Platform(served).serve("sets", {table: rows})

    (found,) = count_overflows(served)

    assert (found.table, found.column, found.rows) == ("t", "s", 1)
    many = "s has values of more than 16 MiB in 1 row of table t"
    assert found.as_text == f"{many}, and keeps the first values"


def test_a_view_that_fails_over_the_rows_is_told(store: Store) -> None:
    frontiers = Frontiers(store, "b")
    newest = frontiers.newest()
    why = "view v cannot be computed: Conversion Error: ..."
    frontiers.publish(structs.replace(newest, number=2, failing={"v": why}))

    status = observe_status(store, None)

    assert status.builds[0].broken == (why,)
    assert f"WARNING: {why}" in status_heading(status, None, None)


def test_status_tells_what_views_cost_dearest_first(store: Store) -> None:
    status = observe_status(store, None)
    costs = {
        name: ViewCost(way, 900, rows, seconds, "then")
        for name, way, rows, seconds in (
            ("a", "by change", 3, 0.0042),
            ("b", "whole", 70, 1.25),
            ("c", "by touched keys", 0, 0.1),
            ("d", "by change", 1, 0.003),
            ("e", "by change", 1, 0.002),
        )
    }
    seen = replace(status, builds=(replace(status.builds[0], view_costs=costs),))

    (build,) = status_listing(seen, datetime(2026, 1, 1, tzinfo=UTC)).row_objects()

    assert build["note"] == (
        "last slice of views: b 1,250 ms whole, c 100 ms by touched keys, a 4 ms by change, "
        "2 more 5 ms"
    )
    assert build["view_costs"]["b"] == {
        "way": "whole",
        "records": 900,
        "rows": 70,
        "seconds": 1.25,
        "at": "then",
        "touched": None,
    }


def test_costs_of_a_builds_views_are_read(store: Store) -> None:
    cost, birth = ViewCost("whole", 9, 3, 0.25, "then"), read_birth(store, "b")
    view = TableBirth("n", (("k", "string"),), ("k",), view="from t", by=("k",), reads=("t",))
    store.delete(f"{folder_of_build('b')}/birth.json")
    put_birth(store, structs.replace(birth, tables=(view,)))
    put_view_costs(store, "b", {"n": cost})

    (build,) = observe_status(store, None).builds

    assert build.view_costs == {"n": cost}
