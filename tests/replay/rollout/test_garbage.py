"""Laws of `kappa gc`: what is left is what is referenced (I5); a dry run finds the same."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from births import make_birth
from journals import NOWHERE, append, held, served, staged, state_of, verified
from msgspec.structs import replace
from plans import B_SERVES

from kappa.base.failpoint import acting
from kappa.base.temporary_folders import PROVE, SPILL, make_folder
from kappa.code.fingerprint import born_rows_version
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.write.commit import TableWriter
from kappa.engine.write.publisher import Publisher
from kappa.replay.rollout.garbage import (
    Garbage,
    GarbageKind,
    collect_garbage,
    ensure_orphans_deleted,
    find_garbage,
)
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.query import connect_reader
from kappa.state.build import put_birth, read_birth, table_path
from kappa.state.files.address import files_in
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import CaughtUp, Event, Retired
from kappa.state.kept_frontiers import KeptFrontierRecord, kept_frontiers_of, put_kept_frontier
from kappa.state.lease import Lease, Pin, ensure_lease, read_floor
from kappa.state.lock import Lock
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import open_newest
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

NOW = 1_000_000.0
KEEP = 600.0
COLUMNS = (("k", "string"), ("n", "bigint"))
DELAYS = TableBirth("delays", COLUMNS, keys=("k",), fold={"n": ("count", None)})
ALL = TableBirth("all", COLUMNS)
TABLES = (DELAYS, ALL, REJECTS_BIRTH)


class House:
    """Builds a (retired), b (idle) and c (serving), with slices and without a running job."""

    def __init__(self, store: Store, object_files: Path) -> None:
        """Takes a store, and the folder in which the store's objects are files."""
        self.store = store
        self.object_files = object_files
        self.slices: dict[str, int] = {}
        for build in "abc":
            self.bear(build)
        ready = [CaughtUp(10, NOWHERE), verified(10), held(10, "b")]
        self.append(*B_SERVES, staged("c"), *ready, served(10, 3, "c", live="b"), Retired("a"))

    def bear(self, build: str) -> None:
        """Makes a build with six slices."""
        version = f"version-of-{build}"
        put_birth(self.store, make_birth(build, TABLES, pipeline="flights", version=version))
        self.fold(build, 6)

    def append(self, *events: Event) -> None:
        append(self.store, *events)

    def fold(self, build: str, count: int) -> Frontier:
        kept = kept_frontiers_of(self.store, build)
        writers = [self.writer(build, table) for table in TABLES]
        birth = make_birth(build, TABLES, pipeline="flights")
        publisher = Publisher(self.store, birth, hold_seconds=10)
        versions = dict.fromkeys((table.name for table in TABLES), 0)
        publisher.begin(Frontier(1, build, 1, Offsets(), versions, ""))
        for _ in range(count):
            number = self.slices.get(build, 0)
            self.slices[build] = number + 1
            mark = mark_of(build, number)
            for writer in writers:
                rows = ArrowRows(one_row(f"k{number % 3}"))
                writer.commit(None if writer.birth.name == "rejects" else rows, mark)
            publisher.publish(mark, {writer.birth.name: writer.version for writer in writers})
        # Each test names the kept frontiers itself.
        for name in self.store.names(f"builds/{build}/kept"):
            self.store.delete(name)
        for each in kept:
            put_kept_frontier(self.store, each)
        return publisher.newest

    def writer(self, build: str, table: TableBirth) -> TableWriter:
        origin = Mark(build, "", -1, -1, Offsets(), Offsets())
        return TableWriter(self.store, build, table, origin=origin, driver_rows=100)

    def newest(self, build: str) -> Frontier:
        return Frontiers(self.store, build).newest()

    def keep(self, frontier: Frontier, seconds: float, *, stays: bool = False) -> None:
        at = datetime.fromtimestamp(NOW - seconds, UTC).isoformat(timespec="milliseconds")
        shown = replace(frontier, published_at=at)
        put_kept_frontier(self.store, KeptFrontierRecord(shown, stays=stays))

    def lease(self, build: str, frontier: Frontier, *, ends_in: float) -> None:
        pins = {build: Pin(frontier.number, frontier.versions)}
        ensure_lease(self.store, Lease(os.getpid(), "ada", NOW + ends_in, pins))

    def crumbs(self, build: str) -> None:
        """Puts the files that a killed job leaves behind."""
        own = f"builds/{build}"
        self.store.put(f"{own}/tables/delays/part-cut-short.parquet", b"half a file")
        for name in ("spark/blockmgr/x", "slice/flights.arrow", "mirror/delays/part-1.parquet"):
            self.store.local.put(f"{own}/{name}", b"half a file")
        self.store.local.path(f"{own}/checkpoint/1/offsets").mkdir(parents=True)

    @property
    def tops(self) -> set[Path]:
        return {self.object_files, self.store.local.folder}

    def there(self, build: str) -> list[str]:
        """Lists the files and folders of a build, in the root and on this host."""
        folders = {top / "builds" / build for top in self.tops}
        return sorted({path.name for folder in folders for path in folder.glob("*")})

    def age(self, *names: str, seconds: float) -> None:
        """Sets the age of objects and files of this host."""
        for path in (top / name for top in self.tops for name in names):
            if path.exists():
                os.utime(path, (NOW - seconds, NOW - seconds))

    def everything(self) -> dict[str, int]:
        return {
            str(path): path.lstat().st_mtime_ns if path.is_file() else 0
            for top in self.tops
            for path in sorted(top.rglob("*"))
        }

    def gc(self) -> tuple[Garbage, ...]:
        return collect_garbage(self.store, keep_seconds=KEEP, now=NOW)

    def look(self) -> tuple[Garbage, ...]:
        return find_garbage(self.store, keep_seconds=KEEP, now=NOW)

    def files(self, build: str, table: str) -> set[str]:
        """Returns the addresses of the data files of a table that exist."""
        path = table_path(self.store, build, table)
        return {f"{path}/{name}" for name in files_in(path)}

    def referenced(self, build: str, table: str, *frontiers: Frontier) -> set[str]:
        path = table_path(self.store, build, table)
        return {
            file
            for frontier in (self.newest(build), *frontiers)
            for file in files(path, frontier.versions[table], None)
        }


def mark_of(build: str, number: int) -> Mark:
    """Returns the mark of a slice of one record."""
    begin, end = (Offsets({"x": {0: offset}}) for offset in (number, number + 1))
    return Mark(build, "", 1, number, begin, end)


def one_row(key: str) -> pa.Table:
    return pa.table({"k": [key], "n": [1]}, schema=arrow_schema(COLUMNS))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(Store(tmp_path / "a root"), tmp_path / "a root")


@pytest.fixture
def any_house(any_store: Store, object_files: Path) -> House:
    """Returns a house in a root of each kind."""
    return House(any_store, object_files)


def lived_in(house: House) -> dict[str, list[Frontier]]:
    """Fills a house with files of every kind; returns the frontiers that are still needed."""
    pinned, old_news, first = house.newest("c"), house.fold("c", 3), house.newest("b")
    house.lease("c", pinned, ends_in=60)
    house.keep(old_news, KEEP + 300)
    recent = house.fold("c", 3)
    house.keep(recent, KEEP - 10)
    house.fold("c", 3)
    house.keep(house.newest("c"), 5)
    house.keep(first, 10 * KEEP, stays=True)
    old = house.fold("b", 3)
    house.lease("b", old, ends_in=-60)
    house.fold("b", 3)
    for build in "bc":
        house.crumbs(build)
    house.store.put("builds/never-staged/birth.json", b"{}")
    house.store.local.put("builds/never-staged/lock", b"")
    own = ("birth.json", "lock")
    house.age(*(f"builds/never-staged/{name}" for name in own), seconds=7200)
    house.age("builds/never-staged", seconds=7200)
    for name, age in (("version-of-c", 7200), ("gone", 7200), ("new", 60)):
        house.store.put(f"cache/describe/{name}.json", b"{}")
        house.age(f"cache/describe/{name}.json", seconds=age)
    # `old_news` answers for all times before `recent`, so it stays until `recent` is past, too.
    return {"b": [first], "c": [pinned, old_news, recent]}


def test_afterwards_files_that_are_there_are_files_referenced(any_house: House) -> None:
    house = any_house
    needed = lived_in(house)

    house.gc()

    for build, frontiers in needed.items():
        for table in ("delays", "all", "rejects"):
            assert house.files(build, table) == house.referenced(build, table, *frontiers)
    assert {path.name for top in house.tops for path in (top / "builds").iterdir()} == {*"abc"}
    assert house.there("a") == ["birth.json", "lock"]
    assert [len(house.store.names(f"builds/{build}/frontier")) for build in "bc"] == [1, 1]
    assert len(house.store.names("leases")) == 1
    described = [name.rsplit("/", 1)[-1] for name in house.store.names("cache/describe")]
    assert described == ["new.json", "version-of-c.json"]
    folders = [path for path in house.store.local.path("builds").rglob("*") if path.is_dir()]
    assert all(any(folder.iterdir()) for folder in folders)


def test_of_each_build_it_says_what_and_how_much(house: House) -> None:
    lived_in(house)
    before = size_of(house)

    found = {(each.build, each.what): each for each in house.gc()}

    kinds = (GarbageKind.FRONTIERS, GarbageKind.FILES, GarbageKind.SCRATCH, GarbageKind.FOLDERS)
    assert set(found) == {
        *(("never-staged", GarbageKind.ORPHAN), ("a", GarbageKind.RETIRED)),
        *((build, what) for build in "bc" for what in kinds),
        *((None, GarbageKind.LEASES), (None, GarbageKind.DESCRIBED)),
    }
    assert found["c", GarbageKind.SCRATCH].count == 3
    assert found["c", GarbageKind.SCRATCH].bytes == 3 * len(b"half a file")
    # The collection itself puts locks, which name the path of their root, and floors.
    assert 0 <= sum(each.bytes for each in found.values()) - (before - size_of(house)) < 2000


def size_of(house: House) -> int:
    """Returns the size of all files except the checksum files, which a collection joins."""
    files_there = [path for top in house.tops for path in top.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files_there if path.parent.name != "sums")


def test_a_dry_run_says_the_same_and_changes_nothing(any_house: House) -> None:
    house = any_house
    lived_in(house)
    before = house.everything()

    said = house.look()

    assert house.everything() == before
    assert said == house.gc()
    assert house.look() == house.gc() == ()


def test_what_is_kept_goes_when_its_time_is_over(house: House) -> None:
    shown = house.newest("c")
    house.keep(shown, KEEP + 300)
    house.fold("c", 3)
    house.keep(house.newest("c"), KEEP + 100)
    house.fold("c", 1)

    said = house.look()

    kept = [(each.build, each.count) for each in said if each.what is GarbageKind.KEPT]
    assert kept == [("c", 1)]
    assert said == house.gc()
    (left,) = (each.frontier for each in kept_frontiers_of(house.store, "c"))
    assert left.number != shown.number
    assert house.files("c", "delays") == house.referenced("c", "delays", left)


def test_a_build_whose_job_runs_is_left_to_it(house: House) -> None:
    lived_in(house)
    with Lock(house.store.local.path("builds/c/lock"), what="build c"):
        before = house.files("c", "delays")
        said = house.look()
        assert said == house.gc()
        assert house.files("c", "delays") == before

    left = [each.left for each in said if each.build == "c"]
    assert left == ["its job runs, and keeps it in shape"]


class Listed(Store):
    """A store in which a reader arrives right after the leases were listed, and reads floors."""

    seen: ClassVar[list[tuple[int, int]]] = []

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        found = super().names(prefix, after=after)
        if prefix == "leases":
            self.seen.append((read_floor(self, "b"), read_floor(self, "c")))
        return found


def test_a_reader_whose_lease_is_listed_too_late_finds_the_floor_above_its_pin(
    tmp_path: Path,
) -> None:
    house = House(Listed(tmp_path), tmp_path)
    pinned = [house.newest(build) for build in "bc"]
    for build in "bc":
        house.fold(build, 3)
    Listed.seen.clear()

    house.gc()

    b, c = (house.newest(build).number for build in "bc")
    # The leases are listed for a, for b, for c, and for those that have expired. A record has
    # retired a, so its readers look at the journal.
    assert Listed.seen == [(0, 0), (b, 0), (b, c), (b, c)]
    assert all(before.number < let_go for before, let_go in zip(pinned, (b, c), strict=True))


def test_a_retired_build_that_a_reader_has_pinned_is_left(any_house: House) -> None:
    house = any_house
    house.lease("a", house.newest("a"), ends_in=60)

    left = [each.left for each in house.look() if each.build == "a"]
    assert left == ["it is retired, and a reader has it pinned"]
    house.gc()
    assert house.files("a", "delays") >= house.referenced("a", "delays")


def rows_of(house: House, pinned: PinnedSnapshot) -> list[object]:
    with connect_reader(pinned.snapshot, house.store) as reader:
        found: list[object] = [*reader.rows('select * from delays, "all" order by all').rows]
    pinned.confirm_kept()
    return found


@pytest.mark.long
def test_pins_of_ten_promotes_read_on_while_collections_die(house: House) -> None:
    """Pins of ten promotes stay readable while collections die.

    Each promote retires the build before it, and each job has died before its next frontier.
    """

    class DiedError(Exception):
        pass

    passings = 0

    def die(name: str) -> None:
        nonlocal passings
        # Threads renew the pins' leases meanwhile.
        if threading.current_thread() is threading.main_thread():
            passings += 1
            if passings % 7 == 6:
                raise DiedError

    live = "c"
    with ExitStack() as closing:
        pins: list[tuple[str, PinnedSnapshot, list[object]]] = []
        for turn in range(10):
            pinned = closing.enter_context(pin_served(house.store, lease_seconds=60))
            pins.append((live, pinned, rows_of(house, pinned)))
            build = f"d{turn}"
            house.bear(build)
            house.fold(build, turn)
            at = state_of(house.store).last + 1
            house.append(
                *(staged(build), CaughtUp(at, NOWHERE), verified(at), held(at, live)),
                *(served(at, 4 + turn, build, live=live), Retired(live)),
            )
            house.writer(build, ALL).commit(ArrowRows(one_row("dead")), mark_of(build, 6 + turn))
            with suppress(DiedError), acting(die):
                collect_garbage(house.store, keep_seconds=0, now=time.time())
            collect_garbage(house.store, keep_seconds=0, now=time.time())
            live = build

            for _, each, then in pins:
                assert rows_of(house, each) == then
        assert passings >= 10
        assert len({each.snapshot.generation for _, each, _ in pins}) == 10
    collect_garbage(house.store, keep_seconds=0, now=time.time())
    assert not any(house.files(build, "delays") for build, _, _ in pins)


@pytest.mark.parametrize("torn", [False, True])
def test_dead_jobs_unpublished_commits_go(any_house: House, torn: bool) -> None:
    """The commit of a dead job is taken back, even if a power loss has torn it."""
    house = any_house
    shown = house.newest("c")
    writer = house.writer("c", ALL)
    writer.commit(ArrowRows(one_row("x")), mark_of("c", 6))
    if torn:
        name = f"builds/c/tables/all/_delta_log/{writer.version:020d}.json"
        house.store.put(name, b"")

    house.gc()

    assert house.files("c", "all") == set(files(writer.path, shown.versions["all"], None))
    assert open_newest(writer.path).version() == shown.versions["all"]


def test_a_build_that_is_being_staged_is_nobodys_rubbish(house: House) -> None:
    house.store.put("builds/new/code/pipelines/p.py", b"")
    house.age("builds/new/code/pipelines/p.py", seconds=60)

    house.gc()

    assert house.store.get("builds/new/code/pipelines/p.py") == b""


def test_a_build_whose_staging_stood_still_for_hours_is_left_to_it(any_house: House) -> None:
    house = any_house
    house.store.put("builds/new/code/pipelines/p.py", b"")
    folders = ("builds/new/code/pipelines", "builds/new/code", "builds/new")
    names = ("builds/new/code/pipelines/p.py", "builds/new/lock", *folders)

    with Lock(house.store.local.path("builds/new/lock"), what="new"):
        house.age(*names, seconds=7200)

        house.gc()
        assert ensure_orphans_deleted(house.store, frozenset(), now=NOW) == ()
        assert house.store.get("builds/new/code/pipelines/p.py") == b""

    house.age(*names, seconds=7200)
    house.gc()
    assert house.store.names("builds/new") == ()
    assert not house.store.local.path("builds/new").exists()


def test_what_a_killed_staging_has_left_on_this_host_alone_goes(any_house: House) -> None:
    house = any_house
    house.store.local.put("builds/new/lock", b"")
    house.age("builds/new/lock", "builds/new", seconds=7200)

    assert [each.build for each in house.look() if each.what is GarbageKind.ORPHAN] == ["new"]
    house.gc()

    assert not house.store.local.path("builds/new").exists()


def test_what_a_killed_command_has_left_goes_and_what_a_living_one_uses_stays(house: House) -> None:
    used = make_folder(house.store.local.path("tmp"), PROVE)
    theirs = house.store.local.path("tmp/spill-of-somebody")
    for name in (f"{PROVE}999999999-1-0a1b2c3d", f"{SPILL}999999999-1-0a1b2c3d", theirs.name):
        house.store.local.put(f"tmp/{name}/builds/b/birth.json", b"{}")

    found = [each for each in (*house.look(), *house.gc()) if each.what is GarbageKind.LEFT]

    assert [(each.build, each.count) for each in found] == [(None, 2), (None, 2)]
    assert set(house.store.local.path("tmp").iterdir()) == {used, theirs}


def test_an_overlay_keeps_the_tables_below_it_and_has_nothing_to_collect(house: House) -> None:
    needed = lived_in(house)
    overlay = replace(read_birth(house.store, "c"), build="d", tables_of="c")
    put_birth(house.store, overlay)
    house.store.put("builds/d/code/p.py", b"pass")
    for name in (overlay.version, born_rows_version(overlay)):
        house.store.put(f"cache/describe/{name}.json", b"{}")
        house.age(f"cache/describe/{name}.json", seconds=7200)
    ready = (CaughtUp(16, NOWHERE), verified(16), served(16, 4, "d", live="c"))
    house.append(staged("d", tables_of="c"), *ready)
    # The newest build below is no idle one any more, and b that was idle before may go.
    shown = house.newest("c")

    found = house.gc()

    assert not [each for each in found if each.build == "d"]
    assert house.newest("d") == shown
    for table in ("delays", "all", "rejects"):
        assert house.files("d", table) == house.referenced("c", table, *needed["c"])
    assert house.there("d") == ["birth.json", "birth_copy.json", "code"]
    assert len(house.store.names("cache/describe")) == 3


def test_what_a_process_was_killed_at_when_it_put_it_goes_after_an_hour(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("leases/a.json", b"{}")
    left = store.path("journal/00000000000000000001.json#4711")
    left.parent.mkdir()
    left.write_bytes(b"half")
    now = time.time()

    collect_garbage(store, keep_seconds=0, now=now)
    assert left.exists(), "it may be under way"
    found = collect_garbage(store, keep_seconds=0, now=now + 3_601)

    assert not left.exists()
    assert "files that were being put" in [each.what for each in found]
