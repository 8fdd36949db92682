"""A build that begins at another build's frontier.

It has the other build's tables at the frontier, and its own after that. Its base is kept.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from births import make_birth
from msgspec.structs import replace

from kappa.base.errors import Broken, Damaged, KappaError
from kappa.declare.values.tally import Tally
from kappa.engine.children.refold import REFOLDED
from kappa.engine.job.legs import LegKind, catch_up
from kappa.engine.job.next_mark import next_mark
from kappa.engine.write.commit import TableWriter
from kappa.state.build import Base, Birth, put_birth, read_birth, table_path
from kappa.state.files.address import arrow_source
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import ensure_past_gone, kept_frontiers_of
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.state.witness import Witness
from kappa.tables.branch import base_frontier, begin_from, keep_base, stands_before_base
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import Guard
from kappa.tables.stored_table import ensure_table
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import files, mark_of

TABLES = (TableBirth("log", (("n", "bigint"),)), TableBirth("other", (("n", "bigint"),)))


def at(offset: int) -> Offsets:
    return Offsets({"orders": {0: offset}})


def birth(build: str, base: Base | None = None) -> Birth:
    return make_birth(build, pipeline="shop", tables=TABLES, origin=at(0).plain(), base=base)


class Folded:
    """A build whose tables have one row per offset, committed one by one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tables = {
            name: ensure_table(table_path(store, "a", name), columns, mark("a", name, 0))
            for name, columns in ((table.name, table.columns) for table in TABLES)
        }

    def fold(self, number: int) -> None:
        for name, table in self.tables.items():
            guard = Guard(f"a/{name}/1", number + 1)
            table.append(pa.table({"n": [number]}), mark("a", name, number + 1), guard)

    def frontier(self, number: int) -> Frontier:
        offset = mark_of(self.tables["log"].path, self.tables["log"].version).end
        versions = {name: table.version for name, table in self.tables.items()}
        folded = offset.at("orders", 0)
        return Frontier(
            *(number, "a", 3, offset, versions, "then", 1, 7),
            log_time={"orders": {0: 99}},
            tally={"orders": {0: Tally(decoded=folded)}},
            witnesses={"orders": {0: Witness(folded - 1, 4, "d")}},
        )


def mark(build: str, table: str, end: int) -> Mark:
    return Mark(build, table, 1, end, at(max(0, end - 1)), at(end))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "röot 1 it's #1?")


def rows(store: Store, build: str, table: str, version: int) -> list[int]:
    return sorted(
        n
        for file in files(table_path(store, build, table), version, None)
        for n in pq.ParquetFile(arrow_source(file)).read().column("n").to_pylist()
    )


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", [False, True])
def test_its_tables_are_the_frontiers_own(any_store: Store, *, checkpointed: bool) -> None:
    store = any_store
    build = Folded(store)
    for number in range(5):
        build.fold(number)
        if checkpointed and number == 2:
            for table in build.tables.values():
                ensure_checkpoint(store, table.path, table.version, None)
    there = build.frontier(8)
    for number in range(5, 9):
        build.fold(number)
        for table in build.tables.values():
            ensure_checkpoint(store, table.path, table.version, None)

    begin_from(store, birth("b"), store, there)
    for table in build.tables.values():
        table.compact(mark("a", "log", 9), target_bytes=1 << 20)
        delete_unneeded(store, table.path, table.version, (), vouched=None)

    first = Frontiers(store, "b").newest()
    # Its base has heard of no deletion since then, whenever the branch is made.
    assert (first.number, first.offsets, first.leg, first.slice) == (1, at(5), -1, -1)
    assert (first.tally, first.log_time) == (there.tally, there.log_time)
    assert (first.heard_at, first.witnesses) == ("then", {"orders": {0: Witness(4, 4, "d")}})
    for name in ("log", "other"):
        assert rows(store, "b", name, first.versions[name]) == [0, 1, 2, 3, 4]
        kept = (there.log_time, there.tally, there.witnesses)
        found = mark_of(table_path(store, "b", name), first.versions[name])
        assert found == Mark("b", name, -1, -1, at(5), at(5), *kept)
        assert rows(store, "a", name, build.tables[name].version) == list(range(9))


def test_it_goes_on_by_itself_and_the_other_build_never_sees_it(any_store: Store) -> None:
    store = any_store
    build = Folded(store)
    build.fold(0)
    begin_from(store, birth("b"), store, build.frontier(1))

    mine = ensure_table(table_path(store, "b", "log"), TABLES[0].columns, mark("b", "log", 0))
    mine.append(pa.table({"n": [7]}), mark("b", "log", 2), Guard("b/log/1", 2))
    mine.compact(mark("b", "log", 2), target_bytes=1 << 20)
    delete_unneeded(store, mine.path, mine.version, (), vouched=None)

    assert rows(store, "b", "log", mine.version) == [0, 7]
    assert rows(store, "a", "log", build.tables["log"].version) == [0]


def test_missing_version_is_damage(any_store: Store) -> None:
    """If a version is missing, the new build is refused, and publishes nothing."""
    store = any_store
    build = Folded(store)
    build.fold(0)
    there = build.frontier(1)
    build.fold(1)
    for table in build.tables.values():
        table.compact(mark("a", "log", 2), target_bytes=1 << 20)
        ensure_checkpoint(store, table.path, table.version, None)
        delete_unneeded(store, table.path, table.version, (), vouched=None)

    with pytest.raises(Damaged):
        begin_from(store, birth("b"), store, there)
    assert Frontiers(store, "b").newest() is None


def test_what_it_stands_on_is_kept_for_as_long_as_it_is_and_told_as_no_time(store: Store) -> None:
    branch = birth("b", Base("a", "v0", at(2).plain(), 1))
    before, reached, later = (
        Frontier(number, "b", 1, at(offset), {}, "2026-01-01T00:00:00+00:00")
        for number, offset in ((1, 1), (2, 2), (3, 3))
    )

    keep_base(store, branch, before)
    with pytest.raises(Broken, match="has not come to where its branch begins"):
        base_frontier(store, branch)
    for newest in (reached, replace(reached, number=3), later):
        keep_base(store, branch, newest)
    ensure_past_gone(store, "b", now=4e9, keep_seconds=1.0)

    (kept,) = kept_frontiers_of(store, "b")
    assert base_frontier(store, branch) == kept.frontier == reached
    assert not kept.shown_at(kept.since)
    keep_base(store, birth("b"), reached)
    assert len(kept_frontiers_of(store, "b")) == 1


def test_any_base_is_proved_from(any_store: Store, tmp_path: Path) -> None:
    """A proof can begin at a base that was folded in any way."""
    store = any_store
    build = Folded(store)
    build.fold(0)
    branch = birth("b", Base("a", "v0", at(20).plain(), 1))
    begin_from(store, branch, store, build.frontier(1))
    writer = TableWriter(store, "b", TABLES[0], origin=origin_mark("b", at(0)), driver_rows=10)
    for piece in catch_up(1, at(1), at(20), at_most=3, kind=LegKind.BASE).slices_after(at(1)):
        writer.commit(None, next_mark(branch, writer.mark(), piece, {}))
    reached = {"offsets": at(20), "versions": {"log": writer.version, "other": 1}}
    keep_base(store, branch, replace(build.frontier(2), build="b", **reached))

    # A proof folds on this host.
    anew = Store(tmp_path / "anew")
    begin_from(anew, branch, store, base_frontier(store, branch))
    again = TableWriter(anew, "b", TABLES[0], origin=origin_mark("b", at(0)), driver_rows=10)
    for number, end in enumerate((at(20), at(21))):
        piece = Slice(REFOLDED, number, again.mark().end, end)
        again.commit(None, next_mark(branch, again.mark(), piece, {}))
    assert again.mark().end == at(21)


def test_files_are_copied_if_links_fail(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are copied if links fail. A full disk is an error."""
    build = Folded(store)
    build.fold(0)

    link = os.link

    def fails(source: Path, to: Path) -> None:
        # A commit is linked to its name within its folder.
        if "tables" in to.parts and source.parent != to.parent:
            raise OSError(errno.EXDEV, "no links between disks")
        link(source, to)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.link", fails)
    begin_from(store, birth("b"), store, build.frontier(1))
    assert rows(store, "b", "log", 2) == [0]
    folders = (Path(table_path(store, each, "log")) for each in "ab")
    one, other = ({path.stat().st_ino for path in folder.iterdir()} for folder in folders)
    assert not one & other

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(KappaError, match="could not be copied: .*No space left on device"):
        begin_from(store, birth("c"), store, build.frontier(1))


def test_it_stands_before_its_base_until_its_frontier_does_not(store: Store) -> None:
    put_birth(store, birth("b", Base("a", "v0", at(2).plain())))
    put_birth(store, birth("whole"))
    assert stands_before_base(store, "b")
    assert not stands_before_base(store, "whole")

    Frontiers(store, "b").publish(Frontier(1, "b", 1, at(1), {}, "then"))
    assert stands_before_base(store, "b")
    Frontiers(store, "b").publish(Frontier(2, "b", 1, at(2), {}, "then"))
    assert not stands_before_base(store, "b")


def test_birth_certificate_has_its_base(store: Store) -> None:
    """A birth certificate contains its base; an older certificate can still be read."""
    branch = birth("b", Base("a", "v0", at(2).plain(), 1, at(1).plain()))
    put_birth(store, branch)
    old = store.get_json("builds/b/birth.json")
    of_before = old.pop("base")
    begun = {"offsets": {"orders": {"0": 2}}, "frontier": 1, "start": {"orders": {"0": 1}}}
    assert of_before == {"build": "a", "version": "v0", **begun}
    store.put_new_json("builds/old/birth.json", old)
    del of_before["start"]
    store.put_new_json("builds/early/birth.json", {**old, "base": of_before})

    assert read_birth(store, "b") == branch
    found = {name: read_birth(store, name) for name in ("b", "old", "early")}
    places = [(each.origin_offsets, each.reads_from, each.begins) for each in found.values()]
    assert places == [(at(0), at(1), at(2)), (at(0), at(0), at(0)), (at(0), at(0), at(2))]
    assert found["old"].base is None
    assert str(branch.base) == "a branch of build a (version v0) at orders:0=2"
