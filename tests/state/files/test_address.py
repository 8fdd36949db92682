"""Laws of the files of a root, by path or URL: the same on a disk and in a bucket."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from kappa.base.errors import KappaError
from kappa.base.sections import StorageSettings
from kappa.state.files.address import (
    ask_side_by_side,
    delete_files,
    delete_folder,
    deletion_parts,
    entries_at,
    file_exists,
    files_in,
    folders_in,
    open_bucket,
    place_file,
    share_file,
)

pytestmark = pytest.mark.slow


def test_all_below_a_folder_is_listed_with_sizes_and_times(any_store):
    for name, content in (("a/x", b"1"), ("a/b/ü", b"333"), ("ab/x", b"")):
        any_store.put(name, content)

    found = list(entries_at(any_store.address("a")))

    assert {each.address: each.size for each in found if not each.is_folder} == {
        any_store.address("a/x"): 1,
        any_store.address("a/b/ü"): 3,
    }
    assert all(abs(each.changed_at - time.time()) < 60 for each in found)
    folders = {any_store.address("a"), any_store.address("a/b")}
    assert {each.address for each in found if each.is_folder} == (
        folders if any_store.is_on_disk else set()
    )
    assert list(entries_at(any_store.address("none"))) == []


def test_files_and_folders_directly_in_a_folder_are_told_apart(any_store):
    for name in ("a/x", "a/b/y", "a/c/d/z"):
        any_store.put(name, b"")

    assert files_in(any_store.address("a")) == ["x"]
    assert folders_in(any_store.address("a")) == ["b", "c"]
    assert folders_in(any_store.address("none")) == []


def test_many_files_are_deleted_by_few_requests_and_what_is_gone_is_no_error(
    object_store, between, tmp_path
):
    bucket = open_bucket(object_store.new_root(), between.storage)
    names = [f"many/{number}" for number in range(1_001)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: bucket.put(name, b"", new=False, synced=False), names))
    on_disk = tmp_path / "file"
    on_disk.write_bytes(b"")
    wanted = [*map(bucket.address, [*names, "gone"]), str(on_disk), str(tmp_path / "gone")]

    with between.counting() as requests:
        for part in deletion_parts(wanted):
            delete_files(part)

    assert [each.split(" ")[0] for each in requests] == ["POST", "POST"]
    assert bucket.names("many") == ()
    assert not on_disk.exists()


@pytest.mark.parametrize("trouble", ["lost", "refused"])
def test_files_are_sent_copied_fetched_and_deleted_though_answers_are_lost(
    object_store, between, tmp_path, trouble
):
    bucket = open_bucket(object_store.new_root(), between.storage)
    content, here = bytes(range(256)) * 50_000, tmp_path / "here"
    here.write_bytes(content)

    def troubled(method, name=""):
        if trouble == "lost":
            return between.losing(method, name)
        between.refused = 2
        return nullcontext()

    with troubled("PUT"):
        place_file(here, bucket.address("sent"))
    assert not here.exists()
    with troubled("PUT", "copied"):
        share_file(bucket.address("sent"), bucket.address("copied"))
    with troubled("GET", "copied"):
        share_file(bucket.address("copied"), str(tmp_path / "below" / "fetched"))
    assert (tmp_path / "below" / "fetched").read_bytes() == content
    with troubled("POST"):
        bucket.delete(["sent", "copied"])
    assert bucket.names("") == ()


def test_a_file_that_is_gone_cannot_be_shared(any_store, tmp_path):
    for to in (any_store.address("b"), str(tmp_path / "b")):
        with pytest.raises(FileNotFoundError):
            share_file(any_store.address("a"), to)
        assert not file_exists(to)


def test_a_folder_is_deleted_with_all_that_is_in_it(any_store):
    for name in ("a/x", "a/b/y", "ab"):
        any_store.put(name, b"")

    delete_folder(any_store.address("a"))
    delete_folder(any_store.address("a"))

    assert any_store.names("") == ("ab",)


def test_what_cannot_be_listed_or_deleted_is_an_error(object_store):
    missing = StorageSettings(endpoint=object_store.storage.endpoint)
    bucket = open_bucket("s3://no-such-bucket/kappa", missing)

    for act in (
        lambda: list(entries_at(bucket.address("a"))),
        lambda: folders_in(bucket.address("a")),
        lambda: bucket.delete(["a", "b"]),
        lambda: bucket.copy("a", "b"),
    ):
        with pytest.raises(KappaError, match="has no bucket no-such-bucket"):
            act()


def test_whoever_asks_side_by_side_asks_no_more_once_an_answer_fails():
    asked = list[int]()
    failing = threading.Event()

    def ask(number: int) -> None:
        asked.append(number)
        if number == 0:
            failing.set()
            raise KappaError("no answer")
        # The others are on their way when it fails, and those that begin later take some time, in
        # which the failure is noticed.
        if failing.is_set():
            time.sleep(0.2)
        failing.wait(10)

    with pytest.raises(KappaError, match="no answer"):
        ask_side_by_side("s3://bucket/root", ask, range(200))
    assert len(asked) < 100
