"""Memories of identities, the same on a disk and in a bucket, where Spark workers find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.base.errors import KappaError
from kappa.records.decode.identity_file import (
    drop_memories,
    get_memory,
    memory_offsets,
    newest_memory,
    put_memory,
)
from kappa.records.identity import Memory
from kappa.state.store import Store

_HORIZON_MS = 1_000


def test_memories_are_put_found_and_dropped(any_store: Store) -> None:
    folder = any_store.address("builds/b/identities/paid")
    assert newest_memory(folder, 0, 100, _HORIZON_MS) is None
    with pytest.raises(KappaError, match="missing"):
        get_memory(folder, 0, 7, _HORIZON_MS)

    for offset in (9, 10, 30):
        accepted = {bytes([offset]) * 16: 100 + offset}
        put_memory(folder, 0, offset, Memory(_HORIZON_MS, accepted), 100 + offset)
    put_memory(folder, 1, 5, Memory(_HORIZON_MS), None)

    assert memory_offsets(folder, 0) == [9, 10, 30]
    found = newest_memory(folder, 0, 29, _HORIZON_MS)
    assert found is not None
    assert (found[0], found[2]) == (10, 110)
    assert found[1].within(110) == {bytes([10]) * 16: 110}
    assert get_memory(folder, 1, 5, _HORIZON_MS)[1] is None
    drop_memories(folder, 0, below=30)
    assert memory_offsets(folder, 0) == [30]


@pytest.mark.parametrize("bit", range(0, 8 * 900, 399))
def test_a_bit_that_changes_in_a_memory_is_noticed(
    tmp_path: Path, bit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed memory would take duplicates for new records, and new records for duplicates."""
    put_memory(str(tmp_path), 0, 9, Memory(_HORIZON_MS, {b"a" * 16: 100}), 100)
    file = tmp_path / "0" / "9.parquet"
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)

    assert newest_memory(str(tmp_path), 0, 9, _HORIZON_MS) is None
    assert f"{file} cannot be read" in capsys.readouterr().err


def test_a_memory_of_an_earlier_kappa_is_read(tmp_path: Path) -> None:
    put_memory(str(tmp_path), 0, 9, Memory(_HORIZON_MS, {b"a" * 16: 100}), 100)
    file = tmp_path / "0" / "9.parquet"
    file.write_bytes(file.read_bytes()[:-32])

    assert get_memory(str(tmp_path), 0, 9, _HORIZON_MS)[1] == 100
