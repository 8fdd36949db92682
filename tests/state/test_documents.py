"""Documents of one kind are read back unchanged, and a file that is not a record is named."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from house import HOUSE
from power import Disk

from kappa.base.disk import sync_files
from kappa.base.document_seal import encoded, sealed, unsealed
from kappa.base.errors import Damaged
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.frontier import Frontier
from kappa.state.lease import floor_records, put_floor, read_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Sight:
    seen: Offsets
    notes: tuple[str, ...] = ()
    format: int = 1


SIGHTS = Documents(Sight)
ONE = Sight(Offsets({"t": {0: 5}}), ("a",))


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


def test_a_record_is_read_back_as_it_was_put(store):
    assert SIGHTS.get(store, "sight.json", "a sight") is None

    SIGHTS.put(store, "sight.json", ONE)

    assert SIGHTS.get(store, "sight.json", "a sight") == ONE
    assert store.get_json("sight.json") == {"seen": {"t": {"0": 5}}, "notes": ["a"], "format": 1}


def test_a_record_that_exists_is_not_put_anew(store):
    assert SIGHTS.put_new(store, "sight.json", ONE)

    assert not SIGHTS.put_new(store, "sight.json", Sight(Offsets()))
    assert SIGHTS.get(store, "sight.json", "a sight") == ONE


def test_a_document_that_is_no_record_is_named_with_what_to_do(store):
    store.put_json("sight.json", {"seen": {}, "notes": 7})

    with pytest.raises(Damaged, match="^a sight cannot be read: ") as caught:
        SIGHTS.get(store, "sight.json", "a sight", hint="delete it")
    assert caught.value.hint == "delete it"


def test_a_row_of_records_ends_at_its_newest(store):
    row = NumberedRecords(store, "sights", SIGHTS, "sight {}")
    assert row.last() is None
    assert [row.put(number, ONE) for number in (1, 2)] == [True, True]
    assert not row.put(2, Sight(Offsets()))
    assert row.put(3, ONE)

    row.delete_below(2)

    assert row.numbers() == (2, 3)
    assert row.last() == (3, ONE)
    assert list(row.after(1)) == [(2, ONE), (3, ONE)]
    store.put_json(row.name(3), {"notes": []})
    with pytest.raises(Damaged, match="^sight 3 cannot be read"):
        row.last()


def test_a_record_that_was_changed_is_not_taken_for_the_one_that_was_put(store):
    row = NumberedRecords(store, "sights", SIGHTS, "sight {}")
    row.put(1, ONE)
    store.put(row.name(1), (store.get(row.name(1)) or b"").replace(b'"a"', b'"b"'))

    with pytest.raises(Damaged, match="^sight 1 cannot be read: .* is not as it was") as caught:
        NumberedRecords(store, "sights", SIGHTS, "sight {}").get(1)
    assert "kappa doctor --repair" in caught.value.hint


def test_a_record_that_was_lost_and_written_again_is_noticed_by_the_one_that_follows(store):
    row = NumberedRecords(store, "sights", SIGHTS, "sight {}")
    for number in (1, 2, 3):
        row.put(number, ONE)
    store.delete(row.name(2))
    again = NumberedRecords(store, "sights", SIGHTS, "sight {}")
    again.put(2, Sight(Offsets(), ("another",)))

    with pytest.raises(Damaged, match="^sight 3 followed another sight 2 than the one that is"):
        list(again.after(0))


def test_records_that_were_put_before_they_were_sealed_are_read(store):
    row = NumberedRecords(store, "sights", SIGHTS, "sight {}")
    store.put(row.name(1), encoded(SIGHTS.plain(ONE)))
    row.put(2, ONE)

    assert [number for number, _ in row.after(0)] == [1, 2]


def test_a_record_that_was_seen_survives_a_power_loss(tmp_path):
    """A record that another process has seen survives a power loss, even if not synced before."""
    root = tmp_path / "root"
    NumberedRecords(Store(root), "sights", SIGHTS, "sight {}").put(1, ONE)
    disk = Disk(root, random.Random(7))
    with disk.watching():
        for number in range(2, 12):
            NumberedRecords(Store(root, syncs=False), "sights", SIGHTS, "sight {}").put(number, ONE)
        # The bytes last: a put syncs them before it gives them a name.
        sync_files((root / "sights").iterdir())

        assert NumberedRecords(Store(root), "sights", SIGHTS, "sight {}").get(9) == ONE
        disk.cut()

    assert NumberedRecords(Store(root), "sights", SIGHTS, "sight {}").get(9) == ONE


def test_records_that_are_read_together_are_waited_for_once(tmp_path, monkeypatch):
    row = NumberedRecords(Store(tmp_path), "sights", SIGHTS, "sight {}")
    for number in range(1, 21):
        row.put(number, ONE)
    synced = []
    monkeypatch.setattr(
        "kappa.state.files.disk.sync_folders", lambda folders: synced.append([*folders])
    )

    other = NumberedRecords(Store(tmp_path), "sights", SIGHTS, "sight {}")
    assert len(list(other.after(0))) == 20
    assert len(synced) == 1

    row.put(21, ONE)
    # One that is being put does not last yet.
    (tmp_path / "sights" / f"{22:020d}.json#7").touch()
    synced.clear()
    assert len(list(other.after(0))) == 21
    assert len(synced) == 1

    (tmp_path / "sights" / f"{22:020d}.json#7").unlink()
    row.put(22, ONE)
    synced.clear()
    assert len(list(other.after(0))) == 22
    assert len(synced) == 1


def test_a_derived_document_that_cannot_be_read_is_moved_aside_and_told(store, capsys):
    derived = Documents(Sight, derived=True, synced=False)
    for content in (b"", b'{"seen": 5}', b"\0" * 40):
        store.put("run/sight.json", content)

        assert derived.get(store, "run/sight.json", "a sight") is None
        assert "it was moved to" in capsys.readouterr().err
    assert store.names("run") == ()
    assert len(store.names("damaged")) == 3


IN_THREADS = """
import dataclasses, sys, threading
from concurrent.futures import ThreadPoolExecutor
from kappa.state.documents import Documents

def nested(depth):
    field = ("inner", nested(depth - 1)) if depth else ("number", int)
    return dataclasses.make_dataclass(f"Kind{depth}", [field], frozen=True)

sys.setswitchinterval(1e-6)
plain = {"number": 7}
for _ in range(8):
    plain = {"inner": plain}
with ThreadPoolExecutor(4) as pool:
    for _ in range(300):
        documents, together = Documents(nested(8)), threading.Barrier(4)
        def parse(_):
            together.wait()
            return documents.parse(plain, "a kind")
        assert len({*pool.map(parse, range(4))}) == 1
"""


@pytest.mark.slow
def test_threads_may_be_the_first_to_read_a_kind():
    ended = subprocess.run(
        [sys.executable, "-P", "-c", IN_THREADS],
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        check=False,
    )
    assert ended.returncode == 0


DOCUMENT = {"a": 1.5e30, "tables": [{"seal": "of the user"}, None], "z": 'quoted "é"'}
FRONTIERS = Documents(Frontier)


def test_each_bit_of_a_document_is_sealed() -> None:
    """The seal covers its own key, and also bits that leave the JSON values equal (1e5, 1E5)."""
    content, _ = sealed(DOCUMENT)
    assert unsealed(content)[0] == DOCUMENT
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):  # noqa: PT011  # no JSON, or its seal is broken
            unsealed(bytes(changed))


@pytest.mark.parametrize("document", [{}, {"seal_of": 1}, {"a": 1}, {"z": "x" * 32}, DOCUMENT])
def test_a_document_is_read_back_with_its_seal_and_without_one(document: dict[str, object]) -> None:
    content, seal = sealed(document)

    assert unsealed(content) == (document, seal)
    assert unsealed(encoded(document)) == (document, "")
    assert json.loads(content) == {**document, "seal": seal}


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_document_that_is_cut_or_empty_is_none(cut: int) -> None:
    content, _ = sealed(DOCUMENT)
    for damaged in (content[: len(content) * cut // 4], b"\0" * len(content)):
        with pytest.raises(ValueError):  # noqa: PT011  # as above
            unsealed(damaged)


def frontiers(store: Store) -> NumberedRecords[Frontier]:
    return NumberedRecords(store, "builds/b/frontier", FRONTIERS, "frontier {} of build b")


def test_a_newest_record_that_is_gone_is_noticed(any_store: Store) -> None:
    """A lost newest record is noticed; otherwise readers would go back to the one before."""
    for number in (1, 2, 3):
        frontiers(any_store).put(number, Frontier(number, "b", 1, Offsets(), {}, "then"))
    reader = frontiers(any_store)
    assert reader.last() is not None
    any_store.delete(reader.name(3))

    for each in (reader, frontiers(any_store)):
        with pytest.raises(Damaged, match="^frontier 3 of build b is gone: .*00003.json") as told:
            each.last()
        assert "kappa doctor" in told.value.hint


def test_all_records_of_a_folder_that_are_gone_are_noticed(any_store: Store) -> None:
    put_floor(any_store, "b", 5)
    any_store.delete(floor_records(any_store, "b").name(1))

    with pytest.raises(Damaged, match="^floor 1 of build b is gone"):
        read_floor(any_store, "b")


class Listing(Store):
    """A store in which one record replaces all others while the first lists are made.

    Such a list contains neither, because the system may read a folder's entries in any order.
    """

    def __init__(self, root: Path, seen: tuple[int, ...]) -> None:
        super().__init__(root)
        self.seen = seen
        self.lists = 2
        self.writer = Store(root)

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        names = super().names(prefix, after=after)
        if not self.lists:
            return names
        self.lists -= 1
        put_floor(self.writer, "b", read_floor(self.writer, "b") + 1)
        return tuple(floor_records(self, "b").name(number) for number in self.seen)


@pytest.mark.parametrize("seen", [(), (1,)])
def test_a_newest_record_that_was_replaced_while_it_was_looked_for_is_not_taken_for_lost(
    tmp_path: Path, seen: tuple[int, ...]
) -> None:
    root = tmp_path / "root"
    for frontier in (1, 2, 3):
        put_floor(Store(root), "b", frontier)

    assert read_floor(Listing(root, seen), "b") == 5


def test_a_note_that_is_lost_or_torn_only_says_less(
    any_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    records = frontiers(any_store)
    records.put(1, Frontier(1, "b", 1, Offsets(), {}, "then"))
    any_store.local.put(records.note, b"{")

    assert frontiers(any_store).last() is not None
    assert "it was moved to" in capsys.readouterr().err
    assert frontiers(any_store).last() is not None
