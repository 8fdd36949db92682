"""A server whose lists lag behind its objects holds no root, and a late list loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from between import Answer, Between
from msgspec.structs import replace
from object_store import ObjectStore
from stale_lists import StaleLists

from kappa.base.errors import Damaged, SettingsError
from kappa.serving.query.pin.snapshot_reads import last_frontier
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import (
    KeptFrontierRecord,
    kept_frontiers_of,
    kept_name,
    lost_kept_numbers,
    put_kept_frontier,
)
from kappa.state.lease import floor_records, put_floor, read_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

FRONTIER = Frontier(1, "b", 1, Offsets(), {}, "2026-11-30T20:00:00+00:00")
PAUSED = Paused("p")


@pytest.fixture
def lists(between: Between) -> StaleLists:
    return StaleLists(between)


def test_a_server_whose_lists_lack_an_object_has_no_root(store: Store, lists: StaleLists) -> None:
    with (
        lists.behind(store.url),
        pytest.raises(SettingsError, match="lists what was there a while ago"),
    ):
        store.control.take(over=False)
    store.control.take(over=False)


def test_a_server_whose_lists_keep_an_object_has_no_root(store: Store, between: Between) -> None:
    """A server whose lists still show a deleted object, as a cache does, can hold no root."""
    listed = dict[str, Answer]()

    def cached(request: str, answer: Answer) -> Answer:
        return listed.setdefault(request, answer) if "list-type=2" in request else answer

    between.changing = cached

    with pytest.raises(SettingsError, match="lists what was there a while ago"):
        store.control.take(over=False)


def put_paused(store: Store, number: int) -> None:
    assert Journal(store).append(number, PAUSED)


def put_frontier(store: Store, number: int) -> None:
    Frontiers(store, "b").publish(replace(FRONTIER, number=number))


def newest_of_journal(store: Store) -> int:
    return [record.number for record in Journal(store).after(0)][-1]


def newest_of_frontiers(store: Store) -> int:
    newest = Frontiers(store, "b").newest()
    return 0 if newest is None else newest.number


@pytest.mark.parametrize(
    ("put", "newest"),
    [
        pytest.param(put_paused, newest_of_journal, id="journal"),
        pytest.param(put_frontier, newest_of_frontiers, id="frontiers"),
        pytest.param(
            lambda store, number: put_floor(store, "b", number),
            lambda store: read_floor(store, "b"),
            id="floors",
        ),
    ],
)
@pytest.mark.parametrize("first", [0, 3])
def test_a_record_that_no_list_has_is_not_lost(
    store: Store,
    lists: StaleLists,
    put: Callable[[Store, int], None],
    newest: Callable[[Store], int],
    first: int,
) -> None:
    """The writer has recorded the number, so the record is read by name, and is not damaged."""
    for number in range(1, first + 1):
        put(store, number)
    with lists.behind(store.url):
        for number in range(first + 1, first + 4):
            put(store, number)

        assert newest(store) == first + 3
        assert lists.count > 0
    store.delete(*store.names("journal")[-1:], *store.names("builds/b/frontier")[-1:])
    for name in floor_records(store, "b").numbers()[-1:]:
        store.delete(floor_records(store, "b").name(name))
    with lists.behind(store.url), pytest.raises(Damaged, match="is gone"):
        newest(store)


def test_a_reader_elsewhere_never_goes_back(
    object_store: ObjectStore, between: Between, lists: StaleLists, tmp_path: Path
) -> None:
    """A reader on another host never goes back, because it remembers what it has read."""
    url = object_store.new_root()
    holder = Store(url, storage=object_store.storage, local=tmp_path / "holder")
    reader = Store(url, storage=between.storage, local=tmp_path / "reader")
    put_frontier(holder, 1)
    put_frontier(holder, 2)
    with lists.behind(url):
        put_frontier(holder, 3)
        seen = [found.number if (found := last_frontier(reader, "b")) else 0]
    seen += [found.number if (found := last_frontier(reader, "b")) else 0]
    Frontiers(holder, "b").delete_below(3)
    with lists.behind(url):
        put_frontier(holder, 4)
        put_frontier(holder, 5)
        for _ in range(2):
            seen += [found.number if (found := last_frontier(reader, "b")) else 0]

    assert seen == sorted(seen)
    assert seen[:2] == [2, 3]


def test_a_kept_frontier_that_no_list_has_is_kept(store: Store, lists: StaleLists) -> None:
    """A kept frontier that no list shows is still kept, so its files are not deleted."""

    def kept(number: int, before: int | None) -> KeptFrontierRecord:
        at = f"2026-11-30T20:{number:02}:00+00:00"
        return KeptFrontierRecord(replace(FRONTIER, number=number, published_at=at), before=before)

    put_kept_frontier(store, kept(1, None))
    with lists.behind(store.url):
        put_kept_frontier(store, kept(5, 1))
        put_kept_frontier(store, kept(9, 5))

        assert [each.frontier.number for each in kept_frontiers_of(store, "b")] == [1, 5, 9]
        assert lost_kept_numbers(store, "b") == ()
        store.delete(kept_name("b", 9))
        assert lost_kept_numbers(store, "b") == (9,)
