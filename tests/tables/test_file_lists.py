"""A frontier vouches for file lists: a damaged log is refused by name, and never read (I14)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from kappa.base.errors import Damaged
from kappa.state.mark import origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import Guard
from kappa.tables.file_list import FileList, commit_path, commits_between, read_list
from kappa.tables.stored_table import StoredTable, ensure_table
from kappa.tables.vacuum import unneeded
from kappa.tables.versions import FileLists, files, touched_files

MARK = origin_mark("b-1", Offsets({"t": {0: 0}}))
NOTHING = FileList(-1, {}, 0)


@pytest.fixture
def table(tmp_path: Path) -> StoredTable:
    """Returns a table with nine commits, of every kind."""
    made = ensure_table(
        str(tmp_path / "röot 1* it's #1?" / "t"), [("k", "string"), ("n", "bigint")], MARK
    )
    for number in range(5):
        made.append(pa.table({"k": [f'ä"{number}'], "n": [number]}), MARK, Guard("a", number))
    made.compact(MARK, target_bytes=1 << 20)
    made.commit_nothing(MARK, Guard("a", 6))
    made.append(pa.table({"k": ["x", None], "n": [1, 2]}), MARK, Guard("a", 7))
    return made


def vouched(table: StoredTable) -> str:
    return read_list(table.path, table.version).sum


@contextmanager
def changed(file: Path, content: bytes) -> Iterator[None]:
    whole = file.read_bytes()
    file.write_bytes(content)
    yield
    file.write_bytes(whole)


def flips(content: bytes, count: int) -> Iterator[bytes]:
    draw = random.Random(48)
    for bit in draw.sample(range(8 * len(content)), min(count, 8 * len(content))):
        rotten = bytearray(content)
        rotten[bit // 8] ^= 1 << bit % 8
        yield bytes(rotten)


def test_commits_and_checkpoints_give_one_sum(table: StoredTable, tmp_path: Path) -> None:
    """The checksum covers the live files, and does not depend on the way of reading."""
    by_commits = NOTHING.after(commits_between(table.path, -1, table.version))
    assert by_commits == read_list(table.path, table.version)
    assert by_commits.at(table.path) == table.files()
    assert len({read_list(table.path, each).sum for each in range(table.version + 1)}) == 8

    ensure_checkpoint(Store(tmp_path), table.path, 4, None)
    for number in range(4):
        Path(commit_path(table.path, number)).unlink()

    assert read_list(table.path, table.version) == by_commits
    ensure_checkpoint(Store(tmp_path), table.path, table.version, by_commits.sum)
    assert read_list(table.path, table.version) == by_commits


def refusal(look: Callable[[], object], right: object) -> str:
    """Returns the reason why a look is refused. A look that is not refused must be right."""
    try:
        assert look() == right
    except Damaged as error:
        return f"{error.message}; {error.hint}"
    return ""


@pytest.mark.parametrize("version", [5, 6, 8], ids=["append", "compact", "last"])
def test_a_flipped_bit_of_a_commit_is_refused(table: StoredTable, version: int) -> None:
    """No answer comes from another file list; flips in the log's free text change no list."""
    commit = Path(commit_path(table.path, version))
    total = vouched(table)

    def look() -> object:
        return files(table.path, table.version, total), touched_files(table.path, 3, table.version)

    right, told = look(), list[str]()
    for content in flips(commit.read_bytes(), 60):
        with changed(commit, content):
            told.append(refusal(look, right))

    refused = [*filter(None, told)]
    assert len(refused) > 20
    assert all(str(commit.parent) in each and "kappa replay" in each for each in refused)


def test_a_flipped_action_is_refused_by_its_commit(table: StoredTable) -> None:
    """A commit with an unknown action is refused; a Delta reader would lose or keep a file."""
    for version, word, other in ((5, b'"add"', b'"cdd"'), (6, b'"remove"', b'"semove"')):
        commit = Path(commit_path(table.path, version))
        with (
            changed(commit, commit.read_bytes().replace(word, other)),
            pytest.raises(Damaged, match=f"{commit.name} is not as it was written"),
        ):
            files(table.path, table.version, None)


@pytest.mark.parametrize("content", [b"", b"\n", b"\0" * 40, b"{}"], ids=range(4))
def test_an_empty_commit_is_no_commit(table: StoredTable, content: bytes) -> None:
    """An empty commit is refused, because each commit of Kappa names its writer.

    This holds even if no frontier vouches for a list.
    """
    known = FileLists()
    looks: tuple[Callable[[], object], ...] = (
        lambda: files(table.path, table.version, None),
        lambda: known.at(table.path, table.version, None),
        lambda: touched_files(table.path, 3, table.version),
        lambda: unneeded(Store(table.path), table.path, table.version, (), vouched=None),
    )
    for version in (5, 8):
        commit = Path(commit_path(table.path, version))
        known.at(table.path, 4, None)
        with changed(commit, content):
            for look in looks:
                with pytest.raises(Damaged, match=f"{commit.name} is not as it was written"):
                    look()


def test_another_list_is_refused_and_named(table: StoredTable) -> None:
    """The error names the commit that contradicts the files or the rest of the log."""
    total = vouched(table)
    for version, old, new in (
        (8, b'"size":', b'"size":1'),
        (8, b"part-", b"qart-"),
        (6, b'"remove":{"path":"part', b'"remove":{"path":"qart'),
    ):
        commit = Path(commit_path(table.path, version))
        content = commit.read_bytes()
        assert old in content
        with changed(commit, content.replace(old, new, 1)), pytest.raises(Damaged) as told:
            files(table.path, table.version, total)
        assert told.value.message.startswith(f"{commit} is not as it was written")


def test_a_damaged_log_is_never_checkpointed(table: StoredTable, tmp_path: Path) -> None:
    """A damaged log is never checkpointed, because that would make the loss permanent."""
    total, last = vouched(table), Path(commit_path(table.path, table.version))
    lines = [each for each in last.read_bytes().splitlines(keepends=True) if b'"add"' not in each]
    with changed(last, b"".join(lines)):
        with pytest.raises(Damaged, match="vouches for"):
            ensure_checkpoint(Store(tmp_path), table.path, table.version, total)
        assert not [*last.parent.glob("*.checkpoint.parquet")]
        with pytest.raises(Damaged, match="vouches for"):
            unneeded(Store(tmp_path), table.path, table.version, (), vouched=total)


def test_a_flipped_bit_of_a_checkpoint_is_refused(table: StoredTable, tmp_path: Path) -> None:
    """A checkpoint is covered by the same checksum as the commits before it."""
    total = vouched(table)
    ensure_checkpoint(Store(tmp_path), table.path, table.version, total)
    (file,) = Path(table.path, "_delta_log").glob("*.checkpoint.parquet")

    def look() -> object:
        return files(table.path, table.version, total)

    right, told = look(), list[str]()
    for content in flips(file.read_bytes(), 60):
        with changed(file, content):
            told.append(refusal(look, right))

    refused = [*filter(None, told)]
    assert refused
    assert all(str(file.parent) in each for each in refused)


def test_a_table_that_is_made_anew_is_read_anew(table: StoredTable) -> None:
    """If the cache contradicts the log, the log is read again."""
    lists = FileLists()
    lists.at(table.path, 4, None)
    for version in (3, 4):
        commit = Path(commit_path(table.path, version))
        commit.write_bytes(Path(commit_path(table.path, 7)).read_bytes())
    fresh = read_list(table.path, 8)

    assert lists.at(table.path, 8, fresh.sum) == fresh.at(table.path)
