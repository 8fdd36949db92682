"""Laws of a bucket's small tables, which their job commits to its own disk first."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pyarrow as pa
import pytest
from shares import long_except

from kappa.base.errors import Damaged, KappaError
from kappa.base.sql import quoted
from kappa.state.build import table_path
from kappa.state.files.address import files_in
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables import mirrored_table
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import Guard, open_newest
from kappa.tables.file_list import ensure_read
from kappa.tables.merge import merge_for
from kappa.tables.mirrored_table import mirrored
from kappa.tables.stored_table import StoredTable, ensure_table, open_table
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import files, list_of, mark_of

pytestmark = pytest.mark.slow

MARK = Mark("b", "t", 1, 1, Offsets(), Offsets())
BIRTH = TableBirth("t", (("k", "string"), ("n", "bigint")), keys=("k",), fold={"n": ("sum", "n")})
HOW = merge_for(BIRTH, quoted)


@pytest.fixture(autouse=True)
def linked(tmp_path: Path) -> None:
    """Makes the host's folder a link, because delta-rs names files by the link's target."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "local").symlink_to(tmp_path / "disk")


def opened(store: Store, name: str = "t") -> StoredTable:
    made = ensure_table(table_path(store, "b", name), BIRTH.columns, MARK)
    return mirrored(made, store.local.path(f"mirror/{name}"))


def contributions(*keys: str) -> pa.Table:
    return pa.table({"k": list(keys), "n": [1] * len(keys)})


def merge(table: StoredTable, number: int, *keys: str) -> None:
    table.merge(contributions(*keys), HOW, MARK, Guard("a", number))


def rows(table: StoredTable) -> dict[str, int]:
    """Returns the rows of the table in the bucket."""
    found = open_newest(table.path).to_pyarrow_table().to_pylist()
    return {row["k"]: row["n"] for row in found}


def test_a_merge_is_two_requests_one_for_its_file_and_one_for_its_commit(store, between):
    table = opened(store)
    merge(table, 1, "a", "b")

    with between.counting() as requests:
        merge(table, 2, "b", "c")
        table.commit_nothing(MARK, Guard("a", 3))

    assert [each.partition(" ")[0] for each in requests] == ["PUT"] * 3, requests
    assert requests[0].endswith(".parquet")
    assert all(each.endswith(".json") for each in requests[1:])
    assert rows(table) == {"a": 1, "b": 2, "c": 1}
    assert table.version == open_newest(table.path).version() == 3
    assert table.files() == files(table.path, 3, None)
    assert table.mark() == mark_of(table.path, 3) == MARK


@pytest.mark.parametrize("seed", long_except([0], range(3)))
def test_whatever_a_job_does_the_bucket_has_it_as_without_a_mirror(store, seed):
    draw = random.Random(seed)
    plain = ensure_table(table_path(store, "b", "plain"), BIRTH.columns, MARK)
    table = opened(store)
    for number in range(1, 25):
        keys = draw.sample("abcdefgh", draw.randrange(4))
        what = draw.choice(["merge", "merge", "append", "nothing", "compact", "delete", "upkeep"])
        for each in (plain, table):
            guard = Guard("a", number)
            match what:
                case "merge":
                    each.merge(contributions(*keys), HOW, MARK, guard)
                case "append":
                    each.append(contributions(*keys), MARK, guard)
                case "nothing":
                    each.commit_nothing(MARK, guard)
                case "compact":
                    each.compact(MARK, target_bytes=1 << 20)
                case "delete":
                    each.delete(f"k = '{keys[0] if keys else 'z'}'", MARK)
                case "upkeep":
                    ensure_checkpoint(store, each.path, each.version, None)
                    each.go_on_with(open_table(each.path))
                    listed = {each.version: list_of(each.path, each.version, None)}
                    ensure_read(listed[each.version], each.path, each.files())
                    delete_unneeded(store, each.path, each.version, [], listed=listed, vouched=None)
        assert table.version == plain.version == open_newest(table.path).version()
        assert sorted(map(str, open_newest(table.path).to_pyarrow_table().to_pylist())) == sorted(
            map(str, open_newest(plain.path).to_pyarrow_table().to_pylist())
        )
    delete_unneeded(store, table.path, table.version, [], vouched=None)
    there = {each for each in files_in(table.path) if each.endswith(".parquet")}
    assert {f"{table.path}/{name}" for name in there} == set(table.files())


def test_a_commit_whose_answer_is_lost_is_there_once(store, between):
    table = opened(store)
    for number, part in enumerate((".parquet", ".json"), 1):
        with between.losing("PUT", part):
            merge(table, number, "a")

    assert rows(table) == {"a": 2}
    assert table.version == open_newest(table.path).version() == 2


def test_of_two_jobs_one_commits_a_version(store):
    one = opened(store)
    other = open_table(one.path)
    merge(other, 1, "theirs")

    with pytest.raises(KappaError, match="another process writes there"):
        merge(one, 1, "ours")

    assert rows(one) == {"theirs": 1}
    again = opened(store)
    merge(again, 2, "ours")
    assert rows(again) == {"theirs": 1, "ours": 1}


def test_where_somebody_else_of_the_job_has_committed_it_goes_on_in_the_bucket(store):
    table = opened(store)
    merge(table, 1, "a")
    for number in (2, 3):
        merge(open_table(table.path), number, "a")
        table.refresh()
        assert table.version == number
    merge(table, 4, "a")

    assert rows(table) == {"a": 4}
    assert table.version == open_newest(table.path).version() == 4
    assert not store.local.path("mirror/t").exists()


def test_a_table_that_has_grown_goes_on_in_the_bucket(store, between, monkeypatch):
    table = opened(store)
    merge(table, 1, "a")
    monkeypatch.setattr(mirrored_table, "_MOST_BYTES", 10)

    merge(table, 2, "a")
    assert not store.local.path("mirror/t").exists()
    with between.counting() as requests:
        merge(table, 3, "a")

    assert len(requests) > 2
    assert rows(table) == {"a": 3}
    assert not isinstance(opened(store), mirrored_table.MirroredTable)


def test_a_table_that_is_written_anew_goes_on_in_the_bucket(store):
    table = opened(store)
    merge(table, 1, "a", "b")
    anew = pa.table({"k": ["c"], "n": [7]})

    table.replace(anew.to_reader(), MARK, Guard("a", 2))
    merge(table, 3, "c")

    assert rows(table) == {"c": 8}
    assert not store.local.path("mirror/t").exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_without_room_for_a_mirror_a_table_is_committed_to_in_the_bucket(store, monkeypatch, error):
    merge(opened(store), 1, "a")

    def fails(*_: object) -> None:
        raise OSError(error, "cannot be written")

    monkeypatch.setattr(mirrored_table, "fetch_file", fails)
    table = opened(store)
    merge(table, 2, "a")

    assert rows(table) == {"a": 2}
    assert not store.local.path("mirror/t").exists()


def test_a_table_with_a_file_that_is_gone_is_damaged(store):
    table = opened(store)
    merge(table, 1, "a")
    store.delete(table.files()[0].removeprefix(f"{store.url}/"))

    with pytest.raises(Damaged, match="part-"):
        opened(store)


def test_a_mirror_keeps_what_its_newest_version_needs_and_no_more(store):
    table = opened(store)
    for number in range(1, 10):
        merge(table, number, "a", f"k{number}")
    folder = store.local.path("mirror/t")
    assert len(list(folder.glob("*.parquet"))) == len(table.files())

    table.go_on_with(open_table(table.path))

    assert len(list((folder / "_delta_log").glob("*.json"))) <= 1
    merge(table, 10, "a")
    assert rows(table)["a"] == 10


def test_a_commit_that_does_not_reach_the_bucket_is_made_by_the_next_job(store, monkeypatch):
    table = opened(store)
    merge(table, 1, "a")
    put = mirrored_table.put_new_file

    def fails_at_the_commit(address: str, content: bytes) -> bool:
        if address.endswith(".json"):
            raise KappaError("no answer")
        return put(address, content)

    monkeypatch.setattr(mirrored_table, "put_new_file", fails_at_the_commit)
    with pytest.raises(KappaError, match="no answer"):
        merge(table, 2, "b")
    monkeypatch.undo()
    # It is on the disk alone. To go on behind it would leave a hole in the bucket's log.
    with pytest.raises(KappaError, match="has committed up to 1"):
        merge(table, 3, "c")
    assert rows(table) == {"a": 1}

    again = opened(store)
    merge(again, 2, "b")
    merge(again, 3, "c")

    assert rows(again) == {"a": 1, "b": 1, "c": 1}
