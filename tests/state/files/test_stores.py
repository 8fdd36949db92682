"""Laws of a store: the same on a disk and in a bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kappa.base.errors import Broken, Damaged, SettingsError
from kappa.base.sections import KafkaSettings, StorageSettings
from kappa.base.settings import Settings
from kappa.state.files.address import file_exists, read_file, writing_file
from kappa.state.store import DAMAGED, Store, open_store


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


# Names that a project's files may have; obstore takes some of these for the end of a name.
NAMES = ["a/b.json", "a/ä b+c.py", "a/%41", "a/x?y=1&z#", "a/[1]*.txt", "a/'\".py"]


@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_read_back_under_its_name_until_it_is_deleted(store, name):
    assert store.get(name) is None

    store.put(name, b"one")
    store.put(name, b"two")

    assert store.get(name) == b"two"
    assert store.names("a") == (name,)
    store.delete(name)
    store.delete(name)
    assert store.get(name) is None
    assert store.names("a") == ()


def test_a_list_is_of_a_folder_and_sorted(store):
    for name in ("a/2", "a/10", "a/b/1", "ab/1", "b"):
        store.put(name, b"")

    assert store.names("a") == ("a/10", "a/2", "a/b/1")
    assert store.names("c") == ()


def test_a_list_has_all_objects_however_many(store):
    names = [f"many/{number:05}" for number in range(1_101)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b"", synced=False), names))

    assert store.names("many") == tuple(names)


def test_a_large_object_is_put_whole(store):
    content = bytes(range(256)) * 65_536

    assert store.put_new("large", content)
    assert store.get("large") == content


def test_a_file_that_is_written_is_there_whole_or_not_at_all(store):
    address = store.address("builds/b/slice/one.parquet")

    def die_in_the_middle() -> None:
        with writing_file(address) as path:
            path.write_bytes(b"half")
            raise Broken("in the middle")

    with pytest.raises(Broken):
        die_in_the_middle()
    assert not file_exists(address)

    for content in (b"one", b"another"):
        with writing_file(address) as path:
            path.write_bytes(content)
        assert read_file(address) == content


def test_an_object_that_exists_is_not_put_anew(store):
    assert store.put_new("a", b"one")

    assert not store.put_new("a", b"two")
    assert store.get("a") == b"one"


def test_of_eight_who_put_at_once_one_wins(store):
    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            won = [*pool.map(lambda who, n=number: store.put_new(f"r/{n}", b"%d" % who), range(8))]

        assert store.get(f"r/{number}") == b"%d" % won.index(True)
        assert won.count(True) == 1


def test_what_is_set_aside_is_kept_elsewhere(store):
    store.put("a/b.json", b"torn")

    aside = store.set_aside("a/b.json")

    assert store.get("a/b.json") is None
    (kept,) = store.names(DAMAGED)
    assert aside == store.address(kept)
    assert store.get(kept) == b"torn"
    assert store.set_aside("a/b.json") is None


def test_a_document_that_is_none_is_named_by_its_address(store):
    store.put("a.json", b"{")

    with pytest.raises(Damaged) as caught:
        store.get_json("a.json")
    assert caught.value.message.startswith(f"{store.address('a.json')} is not a JSON document: ")


def test_what_is_of_this_host_is_on_its_disk(store):
    store.local.put("run/lock", b"me")

    assert store.local.path("run/lock").read_bytes() == b"me"
    assert store.local.local is store.local
    assert (store.local is store) == store.is_on_disk
    assert (store.get("run/lock") is not None) == store.is_on_disk


@pytest.mark.parametrize(
    "root", ["s3://bucket", "s3://Bucket/x", "s3://bucket/a//b", "s3://bucket/../a", "s3:///x"]
)
def test_a_root_in_a_bucket_is_a_folder_of_it(tmp_path, root):
    with pytest.raises(SettingsError, match="is not the URL of a folder in a bucket") as caught:
        Store(root, storage=StorageSettings(), local=tmp_path)
    assert "s3://BUCKET/kappa" in caught.value.hint


def test_a_name_of_a_bucket_that_is_too_short_or_long_is_called_that(tmp_path):
    for name, why in (("ab", "short: it has 2"), ("a" * 64, "long: it has 64")):
        with pytest.raises(SettingsError, match=f"the name {name} .* is too {why} characters"):
            Store(f"s3://{name}/kappa", storage=StorageSettings(), local=tmp_path)


@pytest.mark.parametrize(
    "root",
    [
        "s3://AKIA:SESA/ME+x@bucket/kappa",
        "s3://bucket/kappa?key=AKIA&secret=SESA/ME",
        "s3://bucket/kappa#SESA/ME",
        "https://AKIA:SESA/ME@host/kappa",
    ],
)
def test_a_secret_in_a_root_is_not_printed(tmp_path, root):
    for cluster in (KafkaSettings(), KafkaSettings(bootstrap_servers="kafka:9092")):
        with pytest.raises(SettingsError) as caught:
            open_store(Settings(project=tmp_path, root=root, kafka=cluster))
        assert "SESA" not in str(caught.value)
        assert "AKIA" not in str(caught.value)


def test_settings_take_a_folder_or_a_bucket_beside_a_cluster_that_outlives_this_host(tmp_path):
    for root, why in (
        ("gs://bucket/kappa", "gs roots are not supported"),
        ("s3://bucket/kappa", "in a bucket, and the log of Kappa's own broker is not"),
    ):
        with pytest.raises(SettingsError, match=why):
            open_store(Settings(project=tmp_path, root=root))

    cluster = KafkaSettings(bootstrap_servers="kafka:9092")
    store = open_store(Settings(project=tmp_path, root="s3://bucket/kappa", kafka=cluster))

    assert (store.url, store.local.folder) == ("s3://bucket/kappa", tmp_path / ".kappa")


def test_a_root_on_the_disk_is_no_folder_of_this_host_for_another_root(tmp_path):
    Store(tmp_path / ".kappa").put("journal/1.json", b"{}")
    cluster = KafkaSettings(bootstrap_servers="kafka:9092")
    settings = Settings(project=tmp_path, root="s3://bucket/kappa", kafka=cluster)

    with pytest.raises(SettingsError, match="is a root itself"):
        open_store(settings)
