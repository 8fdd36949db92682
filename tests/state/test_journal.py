"""Laws of the journal, of a process's view of it, of numbered records and of the frontier."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kappa.base.errors import Broken, Damaged, KappaError
from kappa.base.settings import load_settings
from kappa.declare.values.tally import Tally
from kappa.kafka.broker.broker import server_properties
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import (
    Abandoned,
    Event,
    Failed,
    Held,
    PromoteAsked,
    Receipt,
    Served,
    Staged,
    SwitchAsked,
    Switched,
)
from kappa.state.journal.journal import Journal, JournalRecord, JournalView
from kappa.state.offsets import Offsets
from kappa.state.store import Store, open_store


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


def staged(build: str = "flights-1") -> Staged:
    return Staged("flights", build, "v1", ("new",))


def served(generation: int, build: str) -> Served:
    receipt = Receipt("flights", build, "v1", Offsets({"flights": {0: 3}}), None, None, first=True)
    return Served(1, generation, {"flights": build}, receipt)


def frontier(number: int, epoch: int = 1) -> Frontier:
    at, tally = Offsets({"t": {0: number}}), {"t": {0: Tally(decoded=number)}}
    return Frontier(number, "b", epoch, at, {"hits": number}, "now", tally=tally)


def put_events(store: Store, *events: dict[str, object]) -> list[Event]:
    """Puts records in the form of an earlier Kappa, and returns the events that are read."""
    for number, event in enumerate(events, start=1):
        store.put_json(
            f"journal/{number:020d}.json",
            {"number": number, "at": "then", "by": "me", "id": "1", "event": event},
        )
    return [record.event for record in Journal(store).after(0)]


def test_of_eight_who_append_at_once_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: Journal(store).append(1, staged(f"flights-{n}")), range(8))
        )

    won = [answer for answer in answers if answer is not None]
    assert len(won) == 1
    assert Journal(store).get(1) == won[0]


class Silent(Store):
    """A store whose put succeeds, although its answer is lost.

    The put is repeated, and finds that the name is taken.
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
    """The error says that the record may hold, because a repeated undo would be a redo."""
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
    of = {"pipeline": "flights", "build": "a"}
    assert put_events(
        store,
        {**of, "kind": "staged", "version": "v1", "reasons": ["new"]},
        {**of, "kind": "switch_asked", "reason": "undo"},
    ) == [
        Staged("flights", "a", "v1", ("new",), ()),
        SwitchAsked("flights", "a", "undo", ()),
    ]


def test_records_of_before_there_were_groups_read_back(store: Store) -> None:
    receipt = {
        "pipeline": "flights",
        "build": "a",
        "version": "v1",
        "first": True,
        "candidate_offsets": {"flights": {"0": 3}},
        "live_build": None,
        "live_offsets": None,
    }
    serving = {"generation": 1, "serving": {"flights": "a"}, "receipt": receipt}
    assert put_events(
        store,
        {"kind": "promote_asked", "rollout": 1},
        {"kind": "held", "rollout": 1, "build": "a", "attempt": 1},
        {"kind": "failed", "rollout": 1, "reason": "no"},
        {"kind": "served", "rollout": 1, **serving},
    ) == [PromoteAsked(1), Held(1, "a", 1), Failed(1, "no"), served(1, "a")]
    assert served(1, "a").switched == (Switched(1, served(1, "a").receipt),)


def test_the_last_served_is_the_newest_of_them(store: Store) -> None:
    journal = Journal(store)
    assert journal.last_served() == (0, None)
    events = (staged(), served(1, "a"), served(2, "b"), Abandoned(1, "no"))
    for number, event in enumerate(events, start=1):
        journal.append(number, event)

    last, record = journal.last_served()

    assert last == 4
    assert record is not None
    assert isinstance(record.event, Served)
    assert record.event.serving == {"flights": "b"}


def test_a_damaged_record_is_said_and_not_skipped(store: Store) -> None:
    store.put_json("journal/00000000000000000001.json", {"number": 1, "event": {"kind": "odd"}})

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


class CountingStore(Store):
    """A store that counts its reads."""

    reads = 0

    def get(self, name: str) -> bytes | None:
        # The note of the last number is beside them, and on this host.
        self.reads += name.startswith("journal/")
        return super().get(name)

    def reads_of(self, look) -> int:
        before = self.reads
        look()
        return self.reads - before


@pytest.fixture
def counted(tmp_path) -> CountingStore:
    return CountingStore(tmp_path)


def abandon(counted: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert Journal(counted).append(number, Abandoned(1, str(number))) is not None


def serve(counted: Store, number: int, generation: int) -> None:
    nowhere = Offsets()
    receipt = Receipt("p", "b", "v", nowhere, None, None)
    assert Journal(counted).append(number, Served(1, generation, {"p": "b"}, receipt)) is not None


def numbers(view: JournalView, after: int = 0) -> list[int]:
    return [record.number for record in view.records(after)]


def test_a_second_look_reads_only_the_new_records(counted):
    abandon(counted, 1, 50)
    view = JournalView(counted)
    assert counted.reads_of(view.records) == 51

    assert counted.reads_of(view.records) == 1
    abandon(Store(counted.folder), 51, 2)
    assert counted.reads_of(lambda: view.records(50)) == 3

    assert numbers(view) == list(range(1, 53))
    assert numbers(view, 50) == [51, 52]


def test_all_views_of_a_store_share_what_was_read(counted):
    abandon(counted, 1, 5)
    JournalView(counted).records()

    assert counted.reads_of(lambda: JournalView(counted).records()) == 1


def test_the_last_served_is_looked_for_once_from_the_end(counted):
    serve(counted, 1, 1)
    abandon(counted, 2, 40)
    view = JournalView(counted)
    assert view.last_served()[1].number == 1

    assert counted.reads_of(view.last_served) == 1
    serve(Store(counted.folder), 42, 2)
    assert counted.reads_of(view.last_served) == 2

    assert view.last_served()[0] == 42
    assert view.last_served()[1].event.generation == 2


def test_what_served_is_known_from_the_last_look_for_it(counted):
    serve(counted, 1, 1)
    assert JournalView(counted).known_served()[1].event.generation == 1
    serve(Store(counted.folder), 2, 2)

    assert counted.reads_of(lambda: JournalView(counted).known_served()) == 0
    assert JournalView(counted).known_served()[1].event.generation == 1
    JournalView(counted).last_served()
    assert JournalView(counted).known_served()[1].event.generation == 2


def test_a_journal_in_which_nothing_served_has_no_last_served(counted):
    view = JournalView(counted)
    assert view.last_served() == (0, None)

    abandon(counted, 1, 3)

    assert view.last_served() == (3, None)


def test_a_damaged_record_raises_at_every_look_and_hides_none_before_it(counted):
    abandon(counted, 1, 2)
    counted.put_json("journal/00000000000000000003.json", {"number": 3})
    view = JournalView(counted)

    for _ in range(2):
        with pytest.raises(Damaged, match="journal record 3 cannot be read"):
            view.records()


def test_a_fold_has_each_record_once_and_all_views_of_a_store_share_it(counted):
    seen = []

    def both(numbers: tuple[int, ...], record: JournalRecord) -> tuple[int, ...]:
        seen.append(record.number)
        return (*numbers, record.number)

    abandon(counted, 1, 3)
    assert JournalView(counted).folded(both, ()) == (1, 2, 3)
    abandon(Store(counted.folder), 4, 2)
    assert JournalView(counted).folded(both, ()) == (1, 2, 3, 4, 5)
    assert JournalView(counted).folded(lambda count, _: count + 1, 0) == 5

    assert seen == [1, 2, 3, 4, 5]


def test_threads_share_a_view_while_records_are_appended(counted):
    view = JournalView(counted)

    def look() -> bool:
        found = numbers(view)
        return found == list(range(1, len(found) + 1))

    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(look) for _ in range(40)]
        abandon(Store(counted.folder), 1, 60)
        looks += [pool.submit(look) for _ in range(40)]
        assert all(each.result() for each in looks)

    assert numbers(view) == list(range(1, 61))


FLUSHED = "log.flush.interval.messages=1\n"


@pytest.mark.parametrize(
    ("setting", "lasts"),
    [("", True), ('durability = "disk"', True), ('durability = "process"', False)],
)
def test_a_record_is_synced_and_then_its_name_unless_processes_alone_may_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, lasts: bool
) -> None:
    (tmp_path / "kappa.toml").write_text(setting, encoding="utf-8")
    settings = load_settings(tmp_path)
    store = open_store(settings)
    synced: list[str] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append("folder" if path.is_dir() else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for number in (1, 2):
        assert Journal(store).append(number, Abandoned(1, "no"))
        store.sync([store.path(f"journal/{number:020d}.json")])

    assert (synced[:2] == ["file", "folder"]) == lasts
    assert bool(synced) == lasts
    properties = server_properties(tmp_path, 1, 2, syncs=settings.syncs)
    assert (FLUSHED in properties) == lasts
