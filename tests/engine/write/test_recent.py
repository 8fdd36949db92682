"""Recent rows: readers get the same rows as if each slice were merged at once (I1).

This is so while rows wait beside a table, while they are drained, and after an interrupted drain.
"""

from __future__ import annotations

import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import waiting
from births import make_birth
from sinking import wait_for
from waiting import COUNTED, FOLDED, FULL, LATEST, WAITING, Twins, contributions
from writers import make_mark, make_writer

from kappa.base.errors import Broken, Damaged, KappaError
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.write import recent_rows
from kappa.engine.write.commit import Merging
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher
from kappa.state.build import recent_names, table_path
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.branch import begin_from
from kappa.tables.merge import contribution_columns
from kappa.tables.stored_table import StoredTable
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

FAILPOINTS = [
    *("recent.before_drain", "recent.after_drain"),
    *("recent.before_empty", "recent.after_empty"),
]


# At most so many slices of a job: in each it drains, or begins to, at least twice.
SLICES = 12
PLACES = 14
# With this one both tables are drained, and both recent tables take over.
SEED = 2

SUMS = TableBirth("sums", (("k", "string"), ("total", "bigint")), ("k",), {"total": ("sum", "n")})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that a recent table is full after some slices.
    monkeypatch.setattr(recent_rows, "_LEAST", FULL)


@pytest.mark.parametrize("table", [FOLDED, LATEST], ids=["folded", "latest"])
@pytest.mark.parametrize(
    "seed",
    [SEED, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(20) if seed != SEED)],
)
def test_readers_see_the_same_rows_wherever_contributions_wait_or_the_job_ends(
    tmp_path: Path, table: TableBirth, seed: int
) -> None:
    draw, twins = random.Random(seed), Twins(tmp_path / "a röot", table)
    seen: list[tuple[dict[str, int], list[dict[str, Any]]]] = []
    drained = 0
    for place in range(PLACES):
        twins.fold(contributions(table, draw, place) if draw.random() < 0.9 else None)
        seen.append((twins.waits.versions(), twins.assert_equal()))
        assert twins.waits.recent is not None
        match draw.randrange(8):
            case 0:
                twins.begin()
            case 1:
                twins.waits.recent.drain()
                assert not twins.waits.recent.holds
            case 2:
                twins.waits.recent.begin_upkeep()
            case _:
                continue
        drained = twins.waits.version
        twins.assert_equal()

    if seed == SEED:
        assert drained > 2, "nothing was drained"
        assert len(twins.waits.versions()) == 3, "no other table took over"
    # What was published stays what it was, whatever was drained since.
    for versions, rows in draw.sample(seen, 5):
        assert twins.rows("waits", versions) == rows
    twins.waits.recent.drain()
    twins.assert_equal()


@pytest.mark.fault
def test_a_job_that_is_killed_around_a_drain_folds_nothing_twice(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, waiting.__file__, str(tmp_path), str(SLICES), *FAILPOINTS], check=True
    )

    twins = Twins(tmp_path, COUNTED)
    for place in range(SLICES * (len(FAILPOINTS) + 1)):
        twins.fold_plain(place)
    twins.assert_equal()


def sums(*totals: tuple[str | None, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": key, "total": Decimal(total)} for key, total in totals],
        arrow_schema(contribution_columns(SUMS)),
    )


def test_a_sum_that_might_not_fit_does_not_wait(tmp_path: Path) -> None:
    twins = Twins(tmp_path, SUMS)
    twins.fold(sums(("a", 2**62 - 10), (None, -5)))
    twins.fold(sums(("b", 4)))
    assert twins.waits.recent is not None
    assert twins.waits.recent.holds
    twins.fold(sums(("a", 9), ("b", 1)))
    twins.fold(sums(("a", 9)))
    twins.assert_equal()
    assert not twins.waits.recent.holds, "it might not have fitted, so all was merged"

    with pytest.raises(
        Broken, match="does not fit|out of range|too large|cast|Cast|Overflow|overflow|range"
    ):
        twins.fold(sums(("a", 2**62), (None, 1)))
    twins.begin()
    assert [row["total"] for row in twins.rows("waits")] == [-5, 2**62 + 8, 5]


def test_many_contributions_do_not_wait_and_those_that_did_are_drained_first(
    tmp_path: Path,
) -> None:
    twins = Twins(tmp_path, SUMS)
    twins.fold(sums(("a", 1), ("b", 2)))
    twins.fold(sums(*((f"k{number}", number) for number in range(9)), ("a", 5)))

    assert twins.waits.recent is not None
    assert not twins.waits.recent.holds
    twins.assert_equal()


def test_a_small_table_is_merged_into_slice_by_slice(tmp_path: Path) -> None:
    writer = make_writer(Store(tmp_path), SUMS, merging=Merging(large_rows=3))
    for number, rows in enumerate([sums(("a", 1), ("b", 1)), sums(("c", 1)), sums(("d", 1))]):
        writer.commit(ArrowRows(rows), make_mark(number, table="sums"))
        assert list(writer.versions()) == ["sums"] if number < 2 else ["sums", "sums.recent-1"]


@pytest.mark.parametrize("fails", ["merge", "empty"], ids=["the drain", "the emptying"])
def test_a_drain_that_fails_stops_the_job_and_the_next_one_folds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    twins = Twins(tmp_path, SUMS)
    for number in range(FULL - 1):
        twins.fold(sums((f"k{number}", 1)))
    assert twins.waits.recent is not None
    done, into = getattr(StoredTable, fails), twins.waits.path

    def refused(table: StoredTable, *told: Any, **named: Any) -> None:
        if fails == "empty" or table.path == into:
            raise KappaError("the disk is full")
        done(table, *told, **named)

    with monkeypatch.context() as broken:
        broken.setattr(StoredTable, fails, refused)
        # Full with this one.
        twins.fold(sums(("k0", 1), ("last", 1)))
        for _ in range(2):
            with pytest.raises(KappaError, match="the disk is full"):
                twins.waits.recent.drain()
    twins.begin()
    twins.assert_equal()
    twins.fold(sums(("k0", 1)))
    assert twins.waits.recent is not None
    twins.waits.recent.drain()
    twins.assert_equal()


def test_a_recent_table_whose_file_is_lost_is_told_of(tmp_path: Path) -> None:
    twins = Twins(tmp_path, SUMS)
    twins.fold(sums(("a", 1)))
    path = table_path(twins.store, "waits", "sums.recent-1")
    for file in files(path, twins.waits.versions()["sums.recent-1"], None):
        Path(file).unlink()
    with pytest.raises(Damaged, match="wait in it"):
        twins.begin()


def test_a_sum_of_doubles_may_change_in_its_last_digits_alone_when_it_is_drained(
    tmp_path: Path,
) -> None:
    table = TableBirth(
        "weights", (("k", "string"), ("weight", "double")), ("k",), {"weight": ("sum", "w")}
    )
    twins = Twins(tmp_path, table)
    for weight in (0.1, 0.2, 0.3, -0.4, 1e9):
        twins.fold(
            pa.table(
                {"k": ["a"], "weight": [weight]}, schema=arrow_schema(contribution_columns(table))
            )
        )
    seen = [twins.rows("waits")[0]["weight"], twins.rows("plain")[0]["weight"]]
    assert twins.waits.recent is not None
    twins.waits.recent.drain()
    assert [*seen, twins.rows("waits")[0]["weight"]] == pytest.approx(
        [1_000_000_000.2] * 3, rel=1e-15
    )


class Maintained:
    """A build with one table whose contributions wait, and its maintenance."""

    def __init__(self, folder: Path) -> None:
        self.twins = Twins(folder, SUMS)
        self.publisher = Publisher(self.twins.store, self.twins.births["waits"], hold_seconds=10)
        self.publisher.begin(Frontier(1, "waits", 1, Offsets(), {"sums": 0}, ""))
        self.now = 1_000.0
        self.maintenance = Maintenance(
            *(self.twins.store, self.twins.births["waits"], (self.twins.waits,), self.publisher),
            seconds=30,
            keep_seconds=0,
            clock=lambda: self.now,
        )

    def fold(self, *totals: tuple[str | None, int]) -> None:
        self.twins.fold(sums(*totals), published=False)
        self.publisher.publish(self.twins.waits.mark(), self.twins.waits.versions())

    def run(self) -> bool:
        self.now += 31
        return self.maintenance.run_if_due()

    def is_drained(self) -> bool:
        self.run()
        recent_rows = self.twins.waits.recent
        return recent_rows is not None and not recent_rows.holds

    def on_disk(self) -> set[str]:
        names = ("sums", *recent_names("sums"))
        return {
            str(file)
            for name in names
            for file in Path(table_path(self.twins.store, "waits", name)).glob("*.parquet")
        }

    def referenced(self) -> set[str]:
        return {
            path
            for name, version in self.publisher.newest.versions.items()
            for path in files(table_path(self.twins.store, "waits", name), version, None)
        }


def test_a_table_at_rest_is_drained_and_only_files_that_are_referenced_are_left(
    tmp_path: Path,
) -> None:
    kept = Maintained(tmp_path)
    for number in range(40):
        kept.fold((f"k{number % 12}", number))
    assert kept.run()
    assert kept.twins.rows("waits", kept.publisher.newest.versions) == kept.twins.rows("plain")

    # Nobody folds: what waits is drained, and the frontier says so.
    wait_for(kept.is_drained, "the drain")
    kept.run()
    assert (
        kept.on_disk()
        == kept.referenced()
        == set(files(kept.twins.waits.path, kept.publisher.newest.versions["sums"], None))
    )
    assert kept.twins.rows("waits", kept.publisher.newest.versions) == kept.twins.rows("plain")
    assert not kept.run(), "there is nothing left to do"


def test_what_waits_for_a_key_that_is_not_fed_again_is_drained(
    tmp_path: Path,
) -> None:
    kept = Maintained(tmp_path)
    kept.fold(("a", 1))
    kept.run()

    def is_drained() -> bool:
        kept.fold()
        return kept.is_drained()

    wait_for(is_drained, "the drain")
    assert kept.twins.rows("waits", kept.publisher.newest.versions) == kept.twins.rows("plain")


def test_drains_leave_a_few_copies_of_their_table_behind_at_most(
    tmp_path: Path,
) -> None:
    kept = Maintained(tmp_path)
    kept.now += 1
    runs, most = 0, 0
    for number in range(40):
        kept.fold(*((f"k{(number * 5 + each) % 40}", 1) for each in range(5)))
        # Less than half a minute after the last time: it is due if a drain waits for it.
        runs += kept.maintenance.run_if_due()
        most = max(most, sum(1 for _ in Path(kept.twins.waits.path).glob("*.parquet")))
    assert kept.twins.waits.version > 8, "hardly anything was drained"
    assert runs >= 2
    assert most <= 3 * recent_rows._COPIES
    assert kept.twins.rows("waits", kept.publisher.newest.versions) == kept.twins.rows("plain")


def test_a_branch_takes_along_what_waits(tmp_path: Path) -> None:
    twins = Twins(tmp_path / "root", SUMS)
    for number in range(5):
        twins.fold(sums((f"k{number}", number), ("all", 1)))
    here = Frontier(9, "waits", 1, Offsets({"x": {0: 5}}), twins.waits.versions(), "then", 1, 4)
    branch = make_birth("branch", (SUMS,))

    begin_from(twins.store, branch, twins.store, here)
    twins.births["branch"] = branch
    writer = make_writer(twins.store, SUMS, "branch", at=here.offsets, merging=WAITING)
    twins.writers["branch"] = writer

    assert twins.rows("branch") == twins.rows("plain")
    twins.fold(sums(("all", 1), ("new", 3)))
    twins.assert_equal()
    assert twins.rows("branch") == twins.rows("plain")
