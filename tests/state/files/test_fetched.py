"""Laws of files fetched from a bucket: limited, each fetched once, kept while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from kappa.serving.query.reader.client import Client, ClientLeft
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.sandbox.file_cache import FileCache, QueryFiles
from kappa.state.store import Store

pytestmark = pytest.mark.slow
SIZE = 100


@pytest.fixture
def store(store: Store) -> Store:
    for number in range(5):
        store.put(f"tables/t/{number}", b"%d" % number * SIZE)
    return store


@pytest.fixture
def fetched(store: Store) -> FileCache:
    """Returns a file cache with room for three files."""
    made = FileCache(store)
    made._most = 3 * SIZE
    return made


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def read(fetched: FileCache, *numbers: int, ended: ExitStack | None = None) -> QueryFiles:
    """Fetches files for a query, which ends at once, or with `ended` if that is given."""
    lent = QueryFiles(fetched)
    try:
        urls = [f"{fetched.root}tables/t/{number}" for number in numbers]
        lent.fetch_files(urls, Client())
        for url, number in zip(urls, numbers, strict=True):
            assert Path(lent.local_path(url)).read_bytes() == b"%d" % number * SIZE
    finally:
        if ended is None:
            lent.delete_folder()
        else:
            ended.callback(lent.delete_folder)
    return lent


def kept(fetched: FileCache) -> set[int]:
    """Returns the numbers of the files that are kept."""
    found = [each for each in fetched.folder.iterdir() if each.is_file()]
    assert sum(each.stat().st_size for each in found) == fetched._bytes <= fetched._most
    return {int(each.read_bytes()[:1]) for each in found}


def test_those_used_longest_ago_make_room(fetched):
    read(fetched, 0)
    read(fetched, 1)
    read(fetched, 2)
    read(fetched, 0)

    read(fetched, 3, 4)

    assert kept(fetched) == {0, 3, 4}


def test_a_file_that_a_query_reads_stays(fetched, ended):
    read(fetched, 0, 1, ended=ended)
    read(fetched, 2)

    read(fetched, 3)
    assert kept(fetched) == {0, 1, 3}
    with pytest.raises(TooMuch):
        read(fetched, 3, 4)
    ended.close()
    read(fetched, 2, 3, 4)
    assert kept(fetched) == {2, 3, 4}


def test_a_file_is_fetched_once_however_many_ask_for_it(fetched, between):
    between.delay_seconds = 0.05
    with between.counting() as requests, ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: read(fetched, 0, 1), range(6)))

    assert sorted(each[-1] for each in requests if each.startswith("GET")) == ["0", "1"]
    assert not fetched._users


def test_one_that_cannot_be_fetched_takes_no_room_and_is_fetched_later(fetched, store):
    store.delete("tables/t/1")

    with pytest.raises(FileNotFoundError):
        read(fetched, 0, 1)

    assert kept(fetched) == {0}
    assert not fetched._users
    store.put("tables/t/1", b"1" * SIZE)
    read(fetched, 0, 1, 2)
    assert kept(fetched) == {0, 1, 2}


def test_what_a_client_that_has_left_asked_for_is_not_fetched_to_its_end(
    fetched, store, monkeypatch
):
    store.put("tables/t/9", b"9" * (20 << 20))
    fetched._most = 30 << 20
    url, client, lent, take_room = (
        f"{fetched.root}tables/t/9",
        Client(),
        QueryFiles(fetched),
        fetched._take_room,
    )

    def leave(name: str, wanted: int) -> None:
        take_room(name, wanted)
        client.leave_now()

    monkeypatch.setattr(fetched, "_take_room", leave)
    with pytest.raises(ClientLeft):
        lent.fetch_files([url], client)
    assert not Path(lent.local_path(url)).read_bytes()
    lent.delete_folder()

    monkeypatch.undo()
    assert kept(fetched) == set()
    other = QueryFiles(fetched)
    other.fetch_files([url], Client())
    assert Path(other.local_path(url)).stat().st_size == 20 << 20
    other.delete_folder()


def test_an_answer_that_breaks_off_is_asked_for_again(fetched, between):
    with between.losing("GET", "/0"):
        read(fetched, 0)

    assert kept(fetched) == {0}


def test_those_of_an_earlier_server_are_found_and_count(fetched, store, between):
    read(fetched, 0, 1, 2)
    next_one = FileCache(store)
    next_one._most = 3 * SIZE

    with between.counting() as requests:
        read(next_one, 0)
    assert requests == []
    read(next_one, 3)

    assert len(kept(next_one)) == 3
