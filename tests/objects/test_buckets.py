"""Laws of a root in a bucket: lost answers, a server that is away or overloaded, its errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from object_store import CREDENTIALS, ObjectStore

from kappa.base.errors import KappaError, SettingsError
from kappa.base.section.storage import StorageSettings
from kappa.objects import bucket
from kappa.state.store import Store


@pytest.fixture
def open_at(object_store: ObjectStore, tmp_path: Path) -> Callable[[StorageSettings], Store]:
    """Opens one and the same root by way of several servers."""
    root = object_store.new_root()
    return lambda storage: Store(root, storage=storage, local=tmp_path / "local")


@pytest.fixture
def store(open_at, between) -> Store:
    """A store behind a proxy."""
    return open_at(between.storage)


def test_a_lost_answer_is_no_lost_race(store, between, open_at, object_store):
    with between.losing("PUT", "/a"):
        assert store.put_new("a", b"mine")
    assert store.get("a") == b"mine"
    methods = [each.partition(" ")[0] for each in between.requests]
    assert methods == [
        "GET",
        "PUT",
        "PUT",
        "GET",
        "GET",
    ]

    open_at(object_store.storage).put("b", b"another's")
    with between.losing("PUT", "/b"):
        assert not store.put_new("b", b"mine")
    assert store.get("b") == b"another's"


def test_whatever_answer_is_lost_the_act_is_done(store, between):
    for method, act in {
        "PUT": lambda: store.put("a", b"one"),
        "GET": lambda: store.get("a"),
        "POST": lambda: store.delete("a"),
    }.items():
        with between.losing(method):
            act()
    assert store.get("a") is None
    store.put("a", b"two")
    with between.losing("GET"):
        assert store.names("") == ("a",)
    with between.losing("PUT"):
        assert store.set_aside("a") is not None
    assert [store.get(name) for name in store.names("damaged")] == [b"two"]
    assert store.get("a") is None


def test_a_server_that_is_overloaded_is_asked_again(store, between):
    between.refused = 3
    assert store.put_new("a", b"one")
    between.refused = 3
    assert store.get("a") == b"one"

    assert between.refused == 0


def test_a_server_that_is_away_is_waited_for(store, between, object_store):
    store.put("a", b"one")
    object_store.kill()
    with ThreadPoolExecutor(2) as pool:
        with between.counting(wait_for=4):
            asked = pool.submit(store.get, "a"), pool.submit(store.put_new, "b", b"two")
        object_store.start()

        assert [each.result() for each in asked] == [b"one", True]


def test_a_server_that_stays_away_is_named(tmp_path, monkeypatch, object_store):
    monkeypatch.setattr(bucket, "_PATIENCE", bucket._CONNECT / 10)
    # Nobody listens at a port that was just free.
    nowhere = StorageSettings(endpoint=f"http://127.0.0.1:{ObjectStore(tmp_path).port}")
    store = Store("s3://kappa-tests/x", storage=nowhere, local=tmp_path)

    with pytest.raises(KappaError) as caught:
        store.get("a")

    assert caught.value.message.startswith(
        f"could not read s3://kappa-tests/x/a: {nowhere.endpoint}: "
    )
    assert "\n" not in str(caught.value)


def test_a_bucket_that_does_not_exist_is_no_empty_one(object_store, tmp_path):
    store = Store("s3://nowhere-at-all/x", storage=object_store.storage, local=tmp_path)

    for act in (
        lambda: store.get("a"),
        lambda: store.names("a"),
        lambda: store.put("a", b""),
        lambda: store.put_new("a", b""),
        lambda: store.set_aside("a"),
    ):
        with pytest.raises(KappaError, match="has no bucket nowhere-at-all"):
            act()


@pytest.mark.parametrize("wrong", CREDENTIALS)
def test_a_refusal_shows_no_secret(open_at, object_store, monkeypatch, wrong):
    monkeypatch.setenv(wrong, "wrong-credential-31415")
    store = open_at(object_store.storage)

    for act in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: store.names("a")):
        with pytest.raises(KappaError, match="does not let this client do that") as caught:
            act()
        shown = f"{caught.value} {caught.value.__cause__!r}"
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in shown
        assert "wrong-credential" not in str(caught.value)


def test_an_endpoint_of_the_environment_alone_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL is set") as caught:
        Store("s3://kappa-tests/x", storage=StorageSettings(), local=tmp_path)
    assert "storage.endpoint" in caught.value.hint
