"""Laws of the journal, of numbered records and of the frontier."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kappa.base.errors import Broken, Damaged, KappaError
from kappa.declare.values.tally import Tally
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import (
    Abandoned,
    Failed,
    Held,
    PromoteAsked,
    Served,
    Staged,
    SwitchAsked,
)
from kappa.state.journal.journal import Journal
from kappa.state.journal.receipt import Receipt, Switched
from kappa.state.offsets import Offsets
from kappa.state.store import Store


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


def staged(build: str = "flights-1") -> Staged:
    return Staged("flights", build, "v1", ("new",))


def served(generation: int, build: str) -> Served:
    receipt = Receipt("flights", build, "v1", Offsets({"flights": {0: 3}}), None, None, first=True)
    return Served(1, generation, {"flights": build}, receipt)


def frontier(number: int, epoch: int = 1) -> Frontier:
    return Frontier(
        number,
        "b",
        epoch,
        Offsets({"t": {0: number}}),
        {"hits": number},
        "now",
        tally={"t": {0: Tally(decoded=number)}},
    )


def test_of_eight_who_append_at_once_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: Journal(store).append(1, staged(f"flights-{n}")), range(8))
        )

    won = [answer for answer in answers if answer is not None]
    assert len(won) == 1
    assert Journal(store).get(1) == won[0]


class Silent(Store):
    """A store whose put succeeds, but its answer is lost.

    The put is tried again and finds the name taken.
    """

    def put_new(self, name: str, content: bytes) -> bool:
        super().put_new(name, content)
        return super().put_new(name, content)


def test_a_record_whose_answer_was_lost_is_ones_own_and_anothers_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mine = Journal(Silent(store.folder)).append(1, staged())

    assert mine is not None
    assert Journal(store).get(1) == mine
    assert Journal(Silent(store.folder)).append(1, staged()) is None


class Unsynced(Store):
    """A store that puts, and then cannot sync the folder."""

    def put_new(self, name: str, content: bytes) -> bool:
        super().put_new(name, content)
        raise KappaError(f"could not write {name}: Input/output error")


def test_a_record_that_is_there_and_could_not_be_synced_is_said_to_hold(tmp_path: Path) -> None:
    """An undo that is typed again for it would be a redo."""
    store = Store(tmp_path)
    with pytest.raises(KappaError, match="the record holds if it is there") as caught:
        Journal(Unsynced(store.folder)).append(1, staged())
    assert "kappa history" in caught.value.hint
    assert Journal(store).get(1) is not None

    with pytest.raises(KappaError, match="could not write .*Input/output error$"):
        Journal(Unsynced(store.folder)).append(1, staged("flights-2"))


def test_every_event_reads_back_as_it_was_written(store: Store) -> None:
    journal = Journal(store)
    written = [
        journal.append(1, staged()),
        journal.append(2, served(1, "flights-1")),
        journal.append(3, Abandoned(1, "grün ✈")),
    ]

    assert list(journal.after(0)) == written


def test_records_of_before_there_was_anything_to_let_through_read_back(store: Store) -> None:
    journal = Journal(store)
    for number, event in enumerate(
        (
            {"kind": "staged", "version": "v1", "reasons": ["new"]},
            {"kind": "switch_asked", "reason": "undo"},
        ),
        start=1,
    ):
        store.put_json(
            f"journal/{number:020d}.json",
            {
                "number": number,
                "at": "then",
                "by": "me",
                "id": "1",
                "event": {"pipeline": "flights", "build": "a", **event},
            },
        )

    assert [record.event for record in journal.after(0)] == [
        Staged("flights", "a", "v1", ("new",), ()),
        SwitchAsked("flights", "a", "undo", ()),
    ]


def test_records_of_before_there_were_groups_read_back(store: Store) -> None:
    journal = Journal(store)
    receipt = {
        "pipeline": "flights",
        "build": "a",
        "version": "v1",
        "candidate_offsets": {"flights": {"0": 3}},
        "live_build": None,
        "live_offsets": None,
        "first": True,
    }
    events = (
        {"kind": "promote_asked", "rollout": 1},
        {"kind": "held", "rollout": 1, "build": "a", "attempt": 1},
        {"kind": "failed", "rollout": 1, "reason": "no"},
        {
            "kind": "served",
            "rollout": 1,
            "generation": 1,
            "serving": {"flights": "a"},
            "receipt": receipt,
        },
    )
    for number, event in enumerate(events, start=1):
        store.put_json(
            f"journal/{number:020d}.json",
            {"number": number, "at": "then", "by": "me", "id": "1", "event": event},
        )

    assert [record.event for record in journal.after(0)] == [
        PromoteAsked(1),
        Held(1, "a", 1),
        Failed(1, "no"),
        served(1, "a"),
    ]
    assert served(1, "a").switched == (Switched(1, served(1, "a").receipt),)


def test_the_last_served_is_the_newest_of_them(store: Store) -> None:
    journal = Journal(store)
    assert journal.last_served() == (0, None)
    for number, event in enumerate(
        [staged(), served(1, "a"), served(2, "b"), Abandoned(1, "no")], start=1
    ):
        journal.append(number, event)

    last, record = journal.last_served()

    assert last == 4
    assert record is not None
    assert isinstance(record.event, Served)
    assert record.event.serving == {"flights": "b"}


def test_a_damaged_record_is_said_and_not_skipped(store: Store) -> None:
    store.put_json(
        "journal/00000000000000000001.json", {"number": 1, "event": {"kind": "unheard of"}}
    )

    with pytest.raises(Damaged, match="journal record 1"):
        list(Journal(store).after(0))


def test_a_late_frontier_of_a_dead_process_is_refused(store: Store) -> None:
    mine, zombie = Frontiers(store, "b"), Frontiers(store, "b")
    mine.publish(frontier(1))
    mine.publish(frontier(2, epoch=2))

    with pytest.raises(Broken, match="frontier 2"):
        zombie.publish(frontier(2, epoch=1))

    assert mine.newest() == frontier(2, epoch=2)


def test_older_frontiers_may_go_and_the_newest_is_still_found(store: Store) -> None:
    frontiers = Frontiers(store, "b")
    for number in range(1, 30):
        frontiers.publish(frontier(number))

    frontiers.delete_below(25)

    assert frontiers.newest() == frontier(29)
    assert frontiers.get(24) is None
    assert frontiers.get(25) == frontier(25)


def test_what_cannot_be_read_is_one_sentence_with_the_machines_reason(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("file", b"{}")

    with pytest.raises(KappaError) as caught:
        store.get("file/name")

    assert caught.value.message == "could not read file/name: Not a directory"


def test_a_hole_stops_every_writer_and_is_named(store: Store) -> None:
    journal = Journal(store)
    for number in (1, 2, 3, 4):
        assert journal.append(number, staged(f"flights-{number}"))
    store.delete("journal/00000000000000000002.json")

    for act in (
        lambda: Journal(store).append(2, staged()),
        lambda: Journal(store).append(5, staged()),
        lambda: list(Journal(store).after(0)),
    ):
        with pytest.raises(
            Damaged, match="^journal record 2 is missing, and record 4 is there"
        ) as caught:
            act()
        assert "kappa doctor --repair" in caught.value.hint
    assert store.get("journal/00000000000000000002.json") is None
