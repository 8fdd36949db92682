"""A pinned version is readable while the job maintains its table (I4, law 11); lists by commits.

A log file may be deleted after a reader has listed it, and before the file is read. A test cannot
cause that at will, so the read is simulated here. The demo's story met the real case.
"""

from __future__ import annotations

import os
import random
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from kappa.base.duck import open_connection
from kappa.base.errors import Broken, Damaged, KappaError
from kappa.base.sql import text
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.write.recent_rows import greatest
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables import versions
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import Guard, open_newest, open_version, progress_of_acts, retried
from kappa.tables.file_list import FileList, read_list
from kappa.tables.merge import Merge
from kappa.tables.stored_table import StoredTable, ensure_table
from kappa.tables.versions import FileLists, files, mark_of

MARK = Mark("b", "t", 1, 1, Offsets(), Offsets())
BY_K = Merge("t.k = s.k", {"n": "s.n"}, {"k": "s.k", "n": "s.n"})


@pytest.fixture
def table(tmp_path: Path) -> StoredTable:
    path = str(tmp_path / "röot 1* it's #1?" / "t")
    return ensure_table(path, [("k", "string"), ("n", "bigint")], MARK)


def grow(table: StoredTable, commits: int, draw: random.Random) -> None:
    """Makes commits of all kinds, in random order."""
    for _ in range(commits):
        rows = pa.table({"k": [draw.choice("abcdef")], "n": [draw.randrange(9)]})
        guard = Guard("a", table.version)
        match draw.choice(["append", "merge", "merge", "nothing", "compact"]):
            case "append":
                table.append(rows, MARK, guard)
            case "merge":
                table.merge(rows, BY_K, MARK, guard)
            case "nothing":
                table.commit_nothing(MARK, guard)
            case "compact":
                table.compact(MARK, target_bytes=1 << 20)


def test_a_merge_that_works_shows_it(table: StoredTable) -> None:
    """A slice with a long merge makes progress; computations in Python do not count."""
    keys = [str(key) for key in range(300_000)]
    rows, seen, done = pa.table({"k": keys, "n": range(len(keys))}), set[int](), threading.Event()
    table.append(rows, MARK, Guard("a", 1))

    def look() -> None:
        while not done.wait(0.01):
            seen.add(progress_of_acts())

    watching = threading.Thread(target=look)
    watching.start()
    table.merge(rows, BY_K, MARK, Guard("a", 2))
    done.set()
    watching.join()

    assert len(seen - {0}) > 2
    assert progress_of_acts() == 0


def test_slices_without_rows_are_commits_of_the_table(table: StoredTable) -> None:
    for number in range(3):
        table.commit_nothing(MARK, Guard("a", number))

    opened = open_newest(table.path)
    assert (table.version, opened.version(), opened.transaction_version("a")) == (3, 3, 2)
    assert mark_of(table.path, 3) == MARK
    with pytest.raises(Broken, match="transaction 2 of a is in"):
        table.commit_nothing(MARK, Guard("a", 2))
    with pytest.raises(Broken, match="transaction 2 of a is in"):
        ensure_table(table.path, [], MARK).commit_nothing(MARK, Guard("a", 2))

    table.append(pa.table({"k": ["x"], "n": [1]}), MARK, Guard("a", 3))
    table.commit_nothing(MARK, Guard("a", 4))
    table.compact(MARK, target_bytes=1 << 20)
    assert table.version == open_newest(table.path).version() == 5
    assert table.files() == files(table.path, 5, None)


def test_what_changes_a_table_follows_the_slices_without_rows_before_it(table: StoredTable) -> None:
    rows = pa.table({"k": ["x"], "n": [1]})
    changes = [
        lambda: table.append(rows, MARK, None),
        lambda: table.merge(rows, BY_K, MARK, None),
        lambda: table.merge(rows.slice(0, 0), BY_K, MARK, None),
        lambda: table.delete("n = 1", MARK),
        lambda: table.replace(rows.to_reader(), MARK, Guard("b", 1)),
        lambda: table.empty(MARK),
    ]
    for number, change in enumerate(changes):
        table.commit_nothing(MARK, Guard("a", 2 * number))
        change()
        assert table.version == open_newest(table.path).version() == 2 * number + 2
    table.commit_nothing(MARK, Guard("a", 99))
    open_newest(table.path).create_checkpoint()
    table.go_on_with(ensure_table(table.path, [], MARK))
    assert table.version == 2 * len(changes) + 1


def test_of_two_who_commit_a_slice_without_rows_one_does(table: StoredTable) -> None:
    other = ensure_table(table.path, [], MARK)
    other.append(pa.table({"k": ["x"], "n": [1]}), MARK, Guard("a", 1))

    with pytest.raises(KappaError, match="another process writes there"):
        table.commit_nothing(MARK, Guard("a", 1))

    assert table.version == 0
    assert len(files(table.path, 1, None)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_followed_commits_give_every_versions_files(table: StoredTable, seed: int) -> None:
    draw = random.Random(seed)
    grow(table, 25, draw)
    lists = FileLists()

    for version in sorted(draw.sample(range(table.version + 1), 15)):
        assert lists.at(table.path, version, None) == files(table.path, version, None)
    for version in draw.sample(range(table.version + 1), 5):
        assert lists.at(table.path, version, None) == files(table.path, version, None)


def test_table_is_opened_and_followed(table: StoredTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is opened again if commits are gone."""
    opened: list[int] = []

    def counted(path: str, version: int) -> FileList:
        opened.append(version)
        return read_list(path, version)

    monkeypatch.setattr(versions, "read_list", counted)
    lists = FileLists(tables=1)
    grow(table, 3, random.Random(1))
    first = tuple(lists.at(table.path, version, None) for version in (0, 1, 3))
    assert opened == [0]
    assert first == tuple(read_list(table.path, each).at(table.path) for each in (0, 1, 3))

    grow(table, 4, random.Random(2))
    newest = table.version
    ensure_checkpoint(Store(Path(table.path)), table.path, newest, None)
    (Path(table.path) / "_delta_log" / f"{newest - 1:020d}.json").unlink()
    opened.clear()
    assert lists.at(table.path, newest, None) == read_list(table.path, newest).at(table.path)
    assert opened == [newest]

    other = ensure_table(table.path + "2", [("k", "string"), ("n", "bigint")], MARK)
    lists.at(other.path, 0, None)
    lists.at(table.path, newest, None)
    assert opened == [newest, 0, newest]


def test_a_look_that_the_log_moved_under_is_taken_again() -> None:
    looks = count()

    def look() -> str:
        if next(looks) == 0:
            raise Damaged("the checkpoint that was listed is gone")
        return "files"

    assert retried(look) == "files"


def test_a_version_that_is_really_gone_is_said() -> None:
    def look() -> str:
        raise Damaged("version 3 cannot be opened")

    with pytest.raises(Damaged, match="version 3"):
        retried(look)


@contextmanager
def no_file_left() -> Iterator[None]:
    """Prevents all opening of files within the block, as if too many files were open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_call_that_failed_is_no_damage(table: StoredTable) -> None:
    """A failed call is not reported as damage, after which a job would not be started again."""
    for look in (open_newest, lambda path: open_version(path, 0), lambda path: mark_of(path, 0)):
        with no_file_left(), pytest.raises(KappaError, match="Too many open files") as caught:
            look(table.path)
        assert not isinstance(caught.value, Damaged)
        look(table.path)

    Path(table.path, "_delta_log", "00000000000000000000.json").write_bytes(b"{")
    for look in (open_newest, lambda path: open_version(path, 0), lambda path: mark_of(path, 0)):
        with pytest.raises(Damaged):
            look(table.path)


def test_greatest_amount_of_a_column_is_a_bound(tmp_path: Path) -> None:
    """A column without statistics has no known bound."""
    columns = (("k", "string"), ("n", "bigint"), ("d", "decimal(20,2)"))
    table = ensure_table(str(tmp_path / "t"), columns, origin_mark("b", Offsets()).of_table("t"))
    assert (table.rows(), greatest(table.facts(), "n")) == (0, 0)
    values = [(-7, Decimal("1.50")), (None, None), (5, Decimal("-2.25"))]
    for number, (n, d) in enumerate(values, 1):
        rows = pa.table({"k": ["a"], "n": [n], "d": [d]}, schema=arrow_schema(columns))
        table.append(rows, origin_mark("b", Offsets()), Guard("t", number))
    assert table.rows() == 3
    assert greatest(table.facts(), "n") == 7
    assert greatest(table.facts(), "d") == Decimal("2.25")
    # A value without statistics in a file: any sum with it exceeds every limit.
    assert greatest(table.facts(), "nowhere") + Decimal(1) > 10**30


def test_a_key_is_in_few_groups_of_rows(tmp_path: Path) -> None:
    """A reader of one key can skip the other row groups, in whatever order rows were written."""
    drawn = random.Random(0)
    keys = drawn.sample(range(0, 200_000, 2), 100_000)
    path = str(tmp_path / "t")
    table = ensure_table(path, [("k", "bigint"), ("n", "bigint")], MARK, keys=("k",))
    for number, part in enumerate((keys[:50_000], keys[50_000:]), 1):
        table.append(pa.table({"k": part, "n": part}), MARK, Guard("a", number))
    table.merge(pa.table({"k": keys[:9], "n": keys[:9]}), BY_K, MARK, Guard("a", 3))
    table.compact(MARK, target_bytes=1 << 30)

    paths = f"[{', '.join(text(each) for each in files(path, table.version, None))}]"
    counts = "count(*) filter (not bloom_filter_excludes), count(*)"
    probe = f"select {counts} from parquet_bloom_probe({paths}, 'k', {keys[5]})"
    with open_connection() as duck:
        ((left, groups),) = duck.execute(probe).fetchall()
        metadata = f"select max(row_group_num_rows) from parquet_metadata({paths})"
        ((most,),) = duck.execute(metadata).fetchall()
    assert groups >= 3
    assert 1 <= left < groups
    assert most <= 32_768
