"""A sealed document that has changed is noticed, whichever bit it is (I14)."""

from __future__ import annotations

import json

import pytest

from kappa.base.errors import Damaged
from kappa.base.sealed import encoded, sealed, unsealed
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.frontier import Frontier
from kappa.state.lease import floor, floor_records, put_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store

DOCUMENT = {"a": 1.5e30, "tables": [{"seal": "of the user"}, None], "z": 'quoted "é"'}
FRONTIERS = Documents(Frontier)


def test_each_bit_of_a_document_is_sealed() -> None:
    """Also those of the seal's own key, and those that leave the JSON's values equal (1e5, 1E5)."""
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
    """Readers saw it, and would go back to the one before."""
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
        floor(any_store, "b")


def test_a_note_that_is_lost_or_torn_only_says_less(
    any_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    records = frontiers(any_store)
    records.put(1, Frontier(1, "b", 1, Offsets(), {}, "then"))
    any_store.local.put(records.note, b"{")

    assert frontiers(any_store).last() is not None
    assert "it was moved to" in capsys.readouterr().err
    assert frontiers(any_store).last() is not None
