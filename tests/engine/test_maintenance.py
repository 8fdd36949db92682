"""After maintenance a table's folder holds exactly what somebody needs (I5), and its newest commit still has its mark (law 3)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kappa.arrow import arrow_schema
from kappa.build import Birth, TableBirth
from kappa.delta import files
from kappa.engine.commit import TableWriter
from kappa.engine.maintenance import Maintenance, pinned_versions, wants_joining
from kappa.engine.publisher import Publisher
from kappa.errors import Damaged
from kappa.frontier import Frontier, Frontiers
from kappa.journal import Held, Journal
from kappa.lease import Lease, Pin, ensure_lease, ensure_released, floor
from kappa.mark import Mark
from kappa.offsets import Offsets
from kappa.store import Store

KEYED = TableBirth("totals", (("k", "string"), ("n", "bigint")), keys=("k",), fold={"n": ("count", None)})
PLAIN = TableBirth("all", (("k", "string"), ("n", "bigint")))
BIRTH = Birth("b", "p", "v", {}, 1, {}, "m", (), (KEYED, PLAIN), {}, {}, {}, "", "")


class Kept:
    """A build whose slices each add a row to both tables."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        origin = Mark("b", "", -1, -1, Offsets(), Offsets())
        self.writers = tuple(TableWriter(self.store, "b", table, origin=origin, driver_rows=100) for table in BIRTH.tables)
        self.publisher = Publisher(self.store, BIRTH, hold_seconds=10)
        self.publisher.take_over(Frontier(1, "b", 1, Offsets(), {"totals": 0, "all": 0}, ""))
        self.now = 1_000.0
        self.maintenance = Maintenance(self.store, "b", self.writers, self.publisher, seconds=30, clock=lambda: self.now)
        self.slices = 0

    def fold(self, count: int) -> None:
        for _ in range(count):
            rows = pa.table({"k": [f"k{self.slices % 5}"], "n": [1]}, schema=arrow_schema(PLAIN.columns))
            mark = Mark("b", "", 1, self.slices, Offsets({"x": {0: self.slices}}), Offsets({"x": {0: self.slices + 1}}))
            for writer in self.writers:
                writer.commit(rows, mark)
            self.slices += 1
            self.publisher.publish(mark, {writer.birth.name: writer.version for writer in self.writers})

    def on_disk(self, table: str) -> set[str]:
        return {str(file) for file in Path(self.writer(table).path).iterdir() if file.is_file()}

    def writer(self, table: str) -> TableWriter:
        return next(writer for writer in self.writers if writer.birth.name == table)

    def pin(self, lease: str) -> dict[str, set[str]]:
        newest = self.publisher.newest
        ensure_lease(self.store, Lease(pid=1, by="me", expires_at=self.now + 60, pins={"b": Pin(newest.number, newest.versions)}, id=lease))
        return {writer.birth.name: set(files(writer.path, newest.versions[writer.birth.name])) for writer in self.writers}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "a root")


def test_only_the_files_of_versions_that_somebody_needs_are_left(kept: Kept) -> None:
    kept.fold(10)
    pinned = kept.pin("reader")
    pinned_at = kept.publisher.newest
    kept.fold(25)

    kept.maintenance.run()

    newest = kept.publisher.newest
    for writer in kept.writers:
        name = writer.birth.name
        assert kept.on_disk(name) == pinned[name] | set(files(writer.path, newest.versions[name]))
        assert set(files(writer.path, pinned_at.versions[name])) == pinned[name]
    assert floor(kept.store, "b") == newest.number
    assert Frontiers(kept.store, "b").get(newest.number - 1) is None

    ensure_released(kept.store, "reader")
    kept.maintenance.run()
    assert all(kept.on_disk(w.birth.name) == set(files(w.path, kept.publisher.newest.versions[w.birth.name])) for w in kept.writers)


def test_files_are_joined_and_the_mark_stays(kept: Kept) -> None:
    kept.fold(30)
    marks = [writer.mark() for writer in kept.writers]

    kept.maintenance.run()

    assert len(kept.on_disk("all")) == 1
    assert [writer.mark() for writer in kept.writers] == marks
    assert kept.publisher.newest.versions == {writer.birth.name: writer.version for writer in kept.writers}
    kept.fold(1)
    logs = [file.name for file in (Path(kept.writer("all").path) / "_delta_log").iterdir()]
    assert len(logs) < 8


def test_rows_are_the_same_before_and_after(kept: Kept) -> None:
    kept.fold(33)
    before = rows(kept)

    kept.maintenance.run()

    assert rows(kept) == before
    assert dict(before["totals"]) == {"k0": 7, "k1": 7, "k2": 7, "k3": 6, "k4": 6}


def test_a_lease_on_what_was_let_go_already_is_passed_over(kept: Kept) -> None:
    kept.fold(10)
    old = kept.publisher.newest
    kept.fold(20)
    kept.maintenance.run()
    ensure_lease(kept.store, Lease(pid=1, by="late", expires_at=kept.now + 60, pins={"b": Pin(old.number, old.versions)}))
    kept.fold(10)

    kept.maintenance.run()

    with pytest.raises(Damaged):
        files(kept.writer("all").path, old.versions["all"])


def test_it_waits_for_its_time_for_something_to_do_and_for_the_end_of_a_hold(kept: Kept) -> None:
    kept.fold(1)
    assert not kept.maintenance.run_if_due()
    kept.now += 30
    assert kept.maintenance.run_if_due()
    kept.now += 30
    assert not kept.maintenance.run_if_due()
    kept.fold(1)
    Journal(kept.store).append(1, Held(rollout=1, build="b", attempt=1))
    kept.publisher.look()
    assert not kept.maintenance.run_if_due()


def test_few_files_are_left_alone() -> None:
    assert not wants_joining([1_000] * 7)
    assert wants_joining([1_000] * 8)
    assert not wants_joining([64 * 1024 * 1024] * 50)


def test_only_pins_of_this_build_and_table_count() -> None:
    leases = [Lease(1, "x", 0, {"b": Pin(3, {"t": 7}), "c": Pin(1, {"t": 8})}), Lease(1, "x", 0, {"b": Pin(3, {"other": 9})})]

    assert pinned_versions(leases, "b", "t") == {7}


def rows(kept: Kept) -> dict[str, list[tuple[str, int]]]:
    import pyarrow.parquet as pq

    found = {}
    for writer in kept.writers:
        paths = files(writer.path, kept.publisher.newest.versions[writer.birth.name])
        found[writer.birth.name] = sorted((row["k"], row["n"]) for path in paths for row in pq.ParquetFile(path).read().to_pylist())
    return found
