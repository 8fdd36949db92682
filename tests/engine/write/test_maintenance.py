"""Maintenance: a table's folder has exactly the files that some reader or job needs (I5).

The table's newest commit still has its mark (law 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from births import make_birth
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from writers import make_mark, make_writer

from kappa.base.errors import Damaged
from kappa.base.failpoint import acting
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.write.commit import TableWriter
from kappa.engine.write.maintenance import Maintenance, pinned_versions, wants_joining
from kappa.engine.write.publisher import Publisher
from kappa.state.files.address import arrow_source, files_in, read_file, write_file
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Held
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import KeptFrontierRecord as KeptFrontier
from kappa.state.kept_frontiers import kept_frontiers_of, put_kept_frontier
from kappa.state.lease import (
    LEASES,
    Lease,
    Pin,
    ensure_lease,
    ensure_released,
    put_floor,
    read_floor,
)
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import LOG_FOLDER
from kappa.tables.durable_versions import take_back_to_frontier
from kappa.tables.file_list import commit_path
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

KEYED = TableBirth(
    "totals", (("k", "string"), ("n", "bigint")), keys=("k",), fold={"n": ("count", None)}
)
PLAIN = TableBirth("all", (("k", "string"), ("n", "bigint")))
BIRTH = make_birth("b", (KEYED, PLAIN))
FilesByTable = dict[str, set[str]]


class Kept:
    """A build in which each slice adds a row to both tables."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writers = tuple(make_writer(store, table) for table in BIRTH.tables)
        self.publisher = Publisher(self.store, BIRTH, hold_seconds=10)
        self.publisher.begin(Frontier(1, "b", 1, Offsets(), {"totals": 0, "all": 0}, ""))
        self.now = 1_000.0
        self.maintenance = Maintenance(
            self.store, BIRTH, self.writers, self.publisher, seconds=30, clock=lambda: self.now
        )
        self.slices = 0

    def run_with(self, *, keep_seconds: float) -> None:
        self.maintenance._keep_seconds = keep_seconds
        self.maintenance.run()

    def fold(self, count: int, *, published: bool = True) -> None:
        for _ in range(count):
            rows = pa.table(
                {"k": [f"k{self.slices % 5}"], "n": [1]}, schema=arrow_schema(PLAIN.columns)
            )
            mark = make_mark(self.slices, table="")
            for writer in self.writers:
                writer.commit(ArrowRows(rows), mark)
            self.slices += 1
            if published:
                self.publisher.publish(
                    mark, {writer.birth.name: writer.version for writer in self.writers}
                )

    def there(self) -> FilesByTable:
        """Returns the addresses of the data files of the tables that exist."""
        return {
            writer.birth.name: {f"{writer.path}/{name}" for name in files_in(writer.path)}
            for writer in self.writers
        }

    def files_at(self, frontier: Frontier) -> FilesByTable:
        """Returns the files of the versions that a frontier names."""
        return self._files_of(frontier.versions)

    def files_now(self) -> FilesByTable:
        """Returns the files of the newest versions, whether published or not."""
        return self._files_of({writer.birth.name: writer.version for writer in self.writers})

    def _files_of(self, versions: Mapping[str, int]) -> FilesByTable:
        return {
            writer.birth.name: set(files(writer.path, versions[writer.birth.name], None))
            for writer in self.writers
        }

    def log(self, table: str) -> set[str]:
        """Returns the names of the files in a table's Delta log."""
        return set(files_in(f"{self.writer(table).path}/{LOG_FOLDER}"))

    def writer(self, table: str) -> TableWriter:
        return next(writer for writer in self.writers if writer.birth.name == table)

    def pin(self, lease: str) -> FilesByTable:
        newest = self.publisher.newest
        pins = {"b": Pin(newest.number, newest.versions)}
        ensure_lease(self.store, Lease(1, "me", self.now + 10_000, pins, id=lease))
        return self.files_at(newest)


def joined(*each: FilesByTable) -> FilesByTable:
    return {name: set[str]().union(*(one[name] for one in each)) for name in each[0]}


@pytest.fixture
def kept(any_store: Store) -> Kept:
    return Kept(any_store)


def test_only_the_files_of_versions_that_somebody_needs_are_left(kept: Kept) -> None:
    kept.fold(10)
    pinned = kept.pin("reader")
    pinned_at = kept.publisher.newest
    kept.fold(25)

    kept.maintenance.run()

    newest = kept.publisher.newest
    assert kept.there() == joined(pinned, kept.files_at(newest))
    assert kept.files_at(pinned_at) == pinned
    assert read_floor(kept.store, "b") == newest.number
    assert Frontiers(kept.store, "b").get(newest.number - 1) is None

    ensure_released(kept.store, "reader")
    kept.maintenance.run()
    assert kept.there() == kept.files_at(kept.publisher.newest)


def test_slices_go_on_between_the_preparation_of_a_run_and_the_run(kept: Kept) -> None:
    kept.fold(25)
    pins = [(kept.publisher.newest, kept.pin("before"))]
    kept.maintenance.prepare()
    kept.fold(2)
    pins.append((kept.publisher.newest, kept.pin("after")))
    kept.fold(3)

    kept.maintenance.run()

    kept.fold(2)
    newest, there = kept.files_at(kept.publisher.newest), kept.there()
    assert joined(there, newest, *(pinned for _, pinned in pins)) == there
    assert [kept.files_at(frontier) for frontier, _ in pins] == [pinned for _, pinned in pins]
    ensure_released(kept.store, "before")
    ensure_released(kept.store, "after")
    kept.maintenance.run()
    assert kept.there() == kept.files_now()


def test_a_slice_whose_frontier_could_not_be_put_is_not_published_by_the_upkeep(
    kept: Kept,
) -> None:
    """If maintenance published the slice, the next job would fold its rows a second time."""
    kept.fold(2)
    newest = kept.publisher.newest
    kept.fold(1, published=False)

    kept.maintenance.run()

    assert kept.publisher.newest == newest
    take_back_to_frontier(kept.store, BIRTH)
    assert make_writer(kept.store, PLAIN).mark().end == newest.offsets


def test_a_lease_that_comes_too_late_to_be_listed_finds_the_floor_above_its_pin(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that comes just after the leases were listed finds the floor above its pin."""
    kept.fold(3)
    pinned = kept.publisher.newest
    kept.fold(3)
    list_names, seen = kept.store.names, list[int]()

    def names(prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        found = list_names(prefix, after=after)
        if prefix == LEASES:
            seen.append(read_floor(kept.store, "b"))
        return found

    monkeypatch.setattr(kept.store, "names", names)
    kept.maintenance.run()

    # The first list is for what is prepared.
    assert len(seen) == 2
    assert seen[-1] > pinned.number


def test_files_are_joined_and_the_mark_stays(kept: Kept) -> None:
    kept.fold(30)
    marks = [writer.mark() for writer in kept.writers]

    kept.maintenance.run()

    assert len(kept.there()["all"]) == 1
    assert [writer.mark() for writer in kept.writers] == marks
    assert kept.publisher.newest.versions == {
        writer.birth.name: writer.version for writer in kept.writers
    }
    kept.fold(1)
    assert len(kept.log("all")) < 8


def test_a_log_is_checkpointed_once_a_frontier_names_its_version(kept: Kept) -> None:
    kept.fold(20)
    named: list[dict[str, int]] = []

    def look(failpoint: str) -> None:
        if failpoint == "table.before_checkpoint":
            newest = Frontiers(kept.store, "b").newest()
            assert newest is not None
            named.append(dict(newest.versions))

    with acting(look):
        kept.maintenance.run()

    assert named == [{"totals": 20, "all": 20}] * 2
    for writer in kept.writers:
        found = {name for name in kept.log(writer.birth.name) if name.endswith(".parquet")}
        assert found == {f"{20:020d}.checkpoint.parquet"}
    # The file that came of joining is of a later version.
    assert kept.writer("all").version == 21


def test_upkeep_stops_at_a_damaged_log(kept: Kept) -> None:
    """A job remembers its own commits, and stops if the disk has changed them."""
    kept.fold(25)
    (writer,) = (each for each in kept.writers if each.birth.name == "all")
    commit = commit_path(writer.path, 2)
    whole = read_file(commit)
    for rotten in (b"", whole.replace(b"part-0", b"part-1")):
        write_file(commit, rotten)
        with pytest.raises(Damaged, match="02.json is not as it was written"):
            kept.maintenance.run()

    write_file(commit, whole)
    kept.maintenance.run()


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
    ensure_lease(kept.store, Lease(1, "late", kept.now + 60, {"b": Pin(old.number, old.versions)}))
    kept.fold(10)

    kept.maintenance.run()

    with pytest.raises(Damaged):
        files(kept.writer("all").path, old.versions["all"], None)


def test_it_waits_for_its_time_for_something_to_do_and_for_the_end_of_a_hold(kept: Kept) -> None:
    kept.fold(1)
    assert not kept.maintenance.run_if_due()
    kept.now += 30
    assert kept.maintenance.run_if_due()
    kept.now += 30
    assert not kept.maintenance.run_if_due()
    kept.fold(1)
    Journal(kept.store).append(1, Held(rollout=1, build="b", attempt=1))
    kept.publisher.follow_journal()
    assert not kept.maintenance.run_if_due()


def test_a_floor_that_is_put_again_takes_away_what_one_who_was_killed_has_left(
    any_store: Store,
) -> None:
    store = any_store
    put_floor(store, "b", 3)
    old = store.names("builds/b/floor")
    content = store.get(old[0])
    assert content is not None
    put_floor(store, "b", 7)
    store.put(old[0], content)

    put_floor(store, "b", 7)

    assert read_floor(store, "b") == 7
    assert len(store.names("builds/b/floor")) == 1


def test_few_files_are_left_alone() -> None:
    assert not wants_joining([1_000] * 7)
    assert wants_joining([1_000] * 8)
    assert not wants_joining([64 * 1024 * 1024] * 50)


def test_only_pins_of_this_build_and_table_count() -> None:
    leases = [
        Lease(1, "x", 0, {"b": Pin(3, {"t": 7}), "c": Pin(1, {"t": 8})}),
        Lease(1, "x", 0, {"b": Pin(3, {"other": 9})}),
    ]

    assert pinned_versions(leases, "b", "t") == {7}


def test_what_readers_saw_in_the_past_is_kept_and_its_log_short(kept: Kept) -> None:
    kept.fold(15)
    shown = kept.publisher.newest
    put_kept_frontier(kept.store, KeptFrontier(shown))
    seen = kept.files_at(shown)
    kept.fold(25)

    for _ in range(2):
        kept.maintenance.run()
        kept.fold(1)

    assert kept.files_at(shown) == seen
    for name, there in kept.there().items():
        assert seen[name] <= there
        assert len(kept.log(name)) < 12, "the log from the kept version on"


def test_a_kept_frontier_whose_time_is_over_goes_though_nothing_else_is_to_do(kept: Kept) -> None:
    kept.fold(3)
    first = kept.publisher.newest
    put_kept_frontier(kept.store, KeptFrontier(replace(first, published_at=told(1_000))))
    kept.fold(3)
    later = replace(kept.publisher.newest, published_at=told(1_060))
    put_kept_frontier(kept.store, KeptFrontier(later))
    kept.fold(1)
    kept.now = 1_030
    assert kept.maintenance.run_if_due()
    kept.now = 1_060 + 3_599
    assert not kept.maintenance.run_if_due()
    assert first.number in {each.frontier.number for each in kept_frontiers_of(kept.store, "b")}

    kept.now += 30

    assert kept.maintenance.run_if_due()
    assert first.number not in {each.frontier.number for each in kept_frontiers_of(kept.store, "b")}
    with pytest.raises(Damaged):
        files(kept.writer("all").path, first.versions["all"], None)


@pytest.mark.law
@examples(5)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fold"), st.integers(1, 9)),
            st.sampled_from(["keep", "keep for good", "pin", "release", "run", "wait"]).map(
                lambda what: (what, 1)
            ),
        ),
        min_size=4,
        max_size=16,
    )
)
def test_whatever_is_kept_or_pinned_files_that_are_there_are_files_referenced(
    new_store: Callable[[], Store], steps: list[tuple[str, int]]
) -> None:
    kept = Kept(new_store())
    kept.fold(1)
    pinned: list[tuple[str, Frontier]] = []
    for number, (what, count) in enumerate(steps):
        shown = kept.publisher.newest
        match what:
            case "fold":
                kept.fold(count)
            case "keep" | "keep for good":
                shown = replace(shown, published_at=told(kept.now))
                put_kept_frontier(kept.store, KeptFrontier(shown, stays=what == "keep for good"))
            case "pin":
                kept.pin(str(number))
                pinned.append((str(number), shown))
            case "release" if pinned:
                ensure_released(kept.store, pinned.pop()[0])
            case "wait":
                kept.now += 50
            case _:
                kept.run_with(keep_seconds=100)
                check_files(kept, [frontier for _, frontier in pinned])


def check_files(kept: Kept, pinned: list[Frontier]) -> None:
    in_history = [each.frontier for each in kept_frontiers_of(kept.store, "b")]
    needed = [kept.files_now(), *map(kept.files_at, (*pinned, *in_history))]
    assert kept.there() == joined(*needed)


def told(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def rows(kept: Kept) -> dict[str, list[tuple[str, int]]]:
    import pyarrow.parquet as pq

    return {
        name: sorted(
            (row["k"], row["n"])
            for path in paths
            for row in pq.ParquetFile(arrow_source(path)).read().to_pylist()
        )
        for name, paths in kept.files_at(kept.publisher.newest).items()
    }
