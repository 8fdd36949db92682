"""Laws of a root in a bucket: lost answers, a server that is away or overloaded, its errors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from between import Answer, Between, proxy_before, unchanged
from house import HOUSE, SUPPORT
from object_store import BUCKET, CREDENTIALS, ObjectStore, running_object_store

from kappa.base.errors import KappaError, SettingsError
from kappa.base.sections import StorageSettings
from kappa.commands.app import run_command
from kappa.kafka.broker_requests import wait_until
from kappa.state.files import bucket
from kappa.state.files.address import arrow_source, fetch_file, files_in, hint_of_server
from kappa.state.files.bucket import GIVE_SPACE
from kappa.state.store import Store
from kappa.tables.delta import open_version

pytestmark = pytest.mark.slow


@pytest.fixture
def open_at(object_store: ObjectStore, tmp_path: Path) -> Callable[[StorageSettings], Store]:
    """Returns a function that opens the same root through different servers."""
    root = object_store.new_root()
    return lambda storage: Store(root, storage=storage, local=tmp_path / "local")


@pytest.fixture
def store(open_at, between) -> Store:
    """Returns a store behind a proxy."""
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


@contextmanager
def cut(between: Between, request: str, *, noticeably: bool = True) -> Iterator[None]:
    """Cuts off an answer in its middle, which must come within the block.

    The client notices that from the declared length, unless `noticeably` is False: then the
    declared length is that of the half.
    """
    left = [request]

    def cutting(line: str, answer: Answer) -> Answer:
        if not left or not line.startswith(request) or not answer.content:
            return answer
        left.clear()
        half = answer.content[: len(answer.content) // 2]
        return replace(answer, content=half, length=len(answer.content) if noticeably else None)

    between.changing = cutting
    yield
    between.changing = unchanged
    assert not left, f"no {request} came: {between.requests}"


def test_an_answer_that_ends_early_is_asked_for_again(store, between, open_at, object_store):
    store.put("a", b"one")
    with cut(between, "GET /kappa-tests/"):
        assert store.get("a") == b"one"
    # An answer that says no is one, too.
    with cut(between, "GET /kappa-tests/"):
        assert store.get("b") is None
    with cut(between, "GET /kappa-tests?list-type"):
        assert store.names("") == ("a",)
    with cut(between, "GET /kappa-tests?delimiter"):
        assert files_in(store.address("")) == ["a"]
    with cut(between, "PUT "):
        assert not store.put_new("a", b"two")
    with cut(between, "PUT "):
        assert store.set_aside("a") is not None
    store.put("c", b"three")
    with cut(between, "POST "):
        store.delete("c")
    assert [name.rpartition("/")[2] for name in store.names("")] == ["a"]


def test_a_server_whose_disk_is_full_is_told(store, between, monkeypatch):
    """The hint points to the full disk, and not to the network."""
    monkeypatch.setattr(bucket, "_patience", bucket.Patience(1, 1, 1))
    full = b"<Error><Code>InsufficientStorage</Code><Message>It is full.</Message></Error>"

    def refuse(line: str, answer: Answer) -> Answer:
        return replace(answer, status=507, content=full) if line.startswith("PUT ") else answer

    between.changing = refuse
    with pytest.raises(KappaError, match="InsufficientStorage") as put:
        store.put("a", b"one")
    between.changing = unchanged

    assert put.value.hint == GIVE_SPACE
    # delta-rs quotes the answer of the server.
    assert hint_of_server(OSError(f"Generic S3 error: 507: {full.decode()}")) == GIVE_SPACE


def test_a_put_that_breaks_off_stores_nothing(store, between, open_at, object_store):
    """If a client ends in the middle of a put, there is no object, and the name is free."""
    direct = open_at(object_store.storage)
    seen: list[bytes | None] = []

    def look(_path: str) -> None:
        seen.append(direct.get("a"))

    with between.halving("PUT", "/a"):
        # The first put breaks off, and the second one is looked at as it arrives.
        between.before("PUT", "/a", lambda _: between.before("PUT", "/a", look))
        assert store.put_new("a", bytes(200_000))
    assert seen == [None]
    assert store.get("a") == bytes(200_000)
    with between.halving("PUT", "/a"):
        store.put("a", b"another one")
    assert store.get("a") == b"another one"


def test_a_put_that_is_not_answered_in_time_is_sent_again(store, between, monkeypatch):
    """A put without a timely answer is sent again.

    A job once ended because a silent server kept its commit for half a minute. The first put is
    answered only after a second put, when nobody waits for that answer any more.
    """
    monkeypatch.setattr(bucket, "_patience", bucket.Patience(60, 1, 1))
    puts: list[str] = []

    def late(line: str, answer: Answer) -> Answer:
        if line.startswith("PUT "):
            puts.append(line)
            wait_until(lambda: len(puts) > 1, "a second put")
        return answer

    between.changing = late
    assert store.put_new("a", b"one")
    assert store.get("a") == b"one"


def test_fewer_bytes_than_were_asked_for_are_no_content_of_a_file(store, between, tmp_path):
    """Fewer bytes than requested are refused.

    A server or a proxy may give a part of an object as if it were all of it.
    """
    address = store.address("a")
    store.put("a", bytes(1_000))
    for read in (
        lambda: fetch_file(address, tmp_path / "a"),
        lambda: arrow_source(address).read(1_000),
    ):
        with (
            cut(between, "GET /kappa-tests/", noticeably=False),
            pytest.raises(KappaError, match=r"/a: http\S+ gave 500 bytes, and not the 1000"),
        ):
            read()
    fetch_file(address, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == bytes(1_000)


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
    monkeypatch.setattr(bucket, "_patience", bucket.Patience(1, 1, 1))
    # Nobody listens at a port that was just free.
    nowhere = StorageSettings(endpoint=f"http://127.0.0.1:{ObjectStore(tmp_path).port}")
    store = Store("s3://kappa-tests/x", storage=nowhere, local=tmp_path)

    with pytest.raises(KappaError) as caught:
        store.get("a")

    assert caught.value.message.startswith(
        f"could not read s3://kappa-tests/x/a: {nowhere.endpoint}: "
    )
    assert "\n" not in str(caught.value)


def test_a_server_that_stayed_away_is_waited_for_once(store, between, object_store, monkeypatch):
    """After one failed wait, a look at many objects does not wait for each of them."""
    monkeypatch.setattr(bucket, "_patience", bucket.Patience(1, 1, 1))
    store.put("a", b"one")
    object_store.kill()
    with pytest.raises(KappaError):
        store.get("a")

    with between.counting() as asked, pytest.raises(KappaError, match=r"^could not read .*/a: "):
        store.get("a")
    assert {each.partition(" ")[0] for each in asked} == {"HEAD"}
    object_store.start()
    with between.counting() as asked:
        assert store.get("a") == b"one"
        assert store.get("a") == b"one"
    assert [each.partition(" ")[0] for each in asked] == ["HEAD", "GET", "GET"]


@pytest.fixture
def silent(object_store: ObjectStore) -> Iterator[StorageSettings]:
    """Yields a server that accepts connections but answers nothing, like a suspended server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield StorageSettings(endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}")


def test_a_silent_server_is_given_up_by_the_client_of_tables_too(silent, tmp_path, monkeypatch):
    """The client of tables gives up a silent server, for which it would wait three minutes."""
    monkeypatch.setattr(bucket, "_patience", bucket.Patience(1, 1, 1))
    store = Store("s3://kappa-tests/x", storage=silent, local=tmp_path)
    began = time.monotonic()

    with pytest.raises(KappaError) as told:
        open_version(store.address("builds/b/tables/t"), 1)

    assert "S3 server" in told.value.hint
    assert time.monotonic() - began < 20


def test_who_looks_at_a_silent_server_is_told_within_seconds(silent, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bucket, "_patience", bucket.WORKING)
    (tmp_path / "kappa.toml").write_text(
        f'root = "s3://kappa-tests/x"\n[storage]\nendpoint = "{silent.endpoint}"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n',
        encoding="utf-8",
    )
    began = time.monotonic()

    assert run_command(["--project", str(tmp_path), "status"]) != 0

    # Half a minute and more without a patience of its own.
    assert time.monotonic() - began < 15
    assert silent.endpoint in capsys.readouterr().err


def test_http_gives_up_a_server_within_half_a_minute() -> None:
    """HTTP gives up a server within half a minute, and then looks only shortly.

    The last attempt begins within `again` seconds, and takes at most `answer` seconds.
    """
    assert bucket.ANSWERING.again + bucket.ANSWERING.answer + bucket.LOOKING.answer < 30
    assert bucket.LOOKING.answer < 5
    assert bucket.FOLDING.again > 30


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


DOMAIN = "s3.test"
# A process of its own: its clients learn of the proxy as they begin.
PROGRAM = f"""
import sys
from pathlib import Path
from served import DELAYS, ROWS_OF_DELAYS, Platform
from kappa.base.sections import StorageSettings
from kappa.state.store import Store

storage = StorageSettings(endpoint="http://{DOMAIN}", path_style=False)
platform = Platform(Store("s3://{BUCKET}/kappa", storage=storage, local=Path(sys.argv[1])))
platform.serve("flights", {{DELAYS: ROWS_OF_DELAYS}})
print(platform.ask("select sum(flights) as n from delays").rows)
"""


def test_all_clients_find_the_bucket_by_its_host(object_store: ObjectStore, tmp_path: Path) -> None:
    del object_store  # it has the program built, and the credentials in the environment
    with (
        running_object_store(tmp_path / "s3", "--virtual-domain", DOMAIN) as running,
        proxy_before(running.storage) as between,
    ):
        # No name is looked up.
        proxy = between.storage.endpoint or ""
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "local")],
            env={
                **os.environ,
                **dict.fromkeys(("HTTP_PROXY", "http_proxy"), proxy),
                **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
                "PYTHONPATH": f"{HOUSE}{os.pathsep}{SUPPORT}",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    assert (ran.returncode, ran.stdout) == (0, "((12,),)\n"), ran.stderr
    # obstore's, delta-rs's and DuckDB's.
    assert {urlsplit(each.split()[1]).netloc for each in between.requests} == {f"{BUCKET}.{DOMAIN}"}
    for what in ("journal/", "_delta_log/", ".parquet"):
        assert any(what in each for each in between.requests)
