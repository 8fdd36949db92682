"""A view of the journal reads each record once, and never misses one that others append."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kappa.base.errors import Damaged
from kappa.state.journal.events import Abandoned, Served
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.journal.receipt import Receipt
from kappa.state.journal.view import JournalView
from kappa.state.offsets import Offsets
from kappa.state.store import Store


class CountingStore(Store):
    """A store that counts how often it is read."""

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
def store(tmp_path) -> CountingStore:
    return CountingStore(tmp_path)


def abandon(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert Journal(store).append(number, Abandoned(1, str(number))) is not None


def serve(store: Store, number: int, generation: int) -> None:
    nowhere = Offsets()
    receipt = Receipt("p", "b", "v", nowhere, None, None)
    assert Journal(store).append(number, Served(1, generation, {"p": "b"}, receipt)) is not None


def numbers(view: JournalView, after: int = 0) -> list[int]:
    return [record.number for record in view.records(after)]


def test_a_second_look_reads_only_the_new_records(store):
    abandon(store, 1, 50)
    view = JournalView(store)
    assert store.reads_of(view.records) == 51

    assert store.reads_of(view.records) == 1
    abandon(Store(store.folder), 51, 2)
    assert store.reads_of(lambda: view.records(50)) == 3

    assert numbers(view) == list(range(1, 53))
    assert numbers(view, 50) == [51, 52]


def test_all_views_of_a_store_share_what_was_read(store):
    abandon(store, 1, 5)
    JournalView(store).records()

    assert store.reads_of(lambda: JournalView(store).records()) == 1


def test_the_last_served_is_looked_for_once_from_the_end(store):
    serve(store, 1, 1)
    abandon(store, 2, 40)
    view = JournalView(store)
    assert view.last_served()[1].number == 1

    assert store.reads_of(view.last_served) == 1
    serve(Store(store.folder), 42, 2)
    assert store.reads_of(view.last_served) == 2

    assert view.last_served()[0] == 42
    assert view.last_served()[1].event.generation == 2


def test_what_served_is_known_from_the_last_look_for_it(store):
    serve(store, 1, 1)
    assert JournalView(store).known_served()[1].event.generation == 1
    serve(Store(store.folder), 2, 2)

    assert store.reads_of(lambda: JournalView(store).known_served()) == 0
    assert JournalView(store).known_served()[1].event.generation == 1
    JournalView(store).last_served()
    assert JournalView(store).known_served()[1].event.generation == 2


def test_a_journal_in_which_nothing_served_has_no_last_served(store):
    view = JournalView(store)
    assert view.last_served() == (0, None)

    abandon(store, 1, 3)

    assert view.last_served() == (3, None)


def test_a_damaged_record_raises_at_every_look_and_hides_none_before_it(store):
    abandon(store, 1, 2)
    store.put_json("journal/00000000000000000003.json", {"number": 3})
    view = JournalView(store)

    for _ in range(2):
        with pytest.raises(Damaged, match="journal record 3 cannot be read"):
            view.records()


def test_a_fold_has_each_record_once_and_all_views_of_a_store_share_it(store):
    seen = []

    def both(numbers: tuple[int, ...], record: JournalRecord) -> tuple[int, ...]:
        seen.append(record.number)
        return (*numbers, record.number)

    abandon(store, 1, 3)
    assert JournalView(store).folded(both, ()) == (1, 2, 3)
    abandon(Store(store.folder), 4, 2)
    assert JournalView(store).folded(both, ()) == (1, 2, 3, 4, 5)
    assert JournalView(store).folded(lambda count, _: count + 1, 0) == 5

    assert seen == [1, 2, 3, 4, 5]


def test_threads_share_a_view_while_records_are_appended(store):
    view = JournalView(store)

    def look() -> bool:
        found = numbers(view)
        return found == list(range(1, len(found) + 1))

    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(look) for _ in range(40)]
        abandon(Store(store.folder), 1, 60)
        looks += [pool.submit(look) for _ in range(40)]
        assert all(each.result() for each in looks)

    assert numbers(view) == list(range(1, 61))
