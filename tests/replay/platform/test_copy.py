"""Laws of copied roots: a copy answers the same anywhere, even if the copying was interrupted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from object_store import ObjectStore
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.errors import Conflict, Copied, ExitCode, SettingsError, Superseded, UsageError
from kappa.base.settings import Settings, load_settings
from kappa.commands.app import run_command
from kappa.replay.platform.copy import _DATA, adopt_copy, copy_root, ensure_whole_root, objects_of
from kappa.serving.query.reader import reader as reader_module
from kappa.state.files.address import put_new_file
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.lease import Lease, Pin, ensure_lease, read_lease
from kappa.state.lock import Lock
from kappa.state.root import LOCK, RootPlace, ensure_root, lock_of, read_root
from kappa.state.store import Store

pytestmark = pytest.mark.slow
QUERIES = [f"select * from {name} order by all" for name in ("delays", "planes", "busy", "rejects")]


@pytest.fixture(autouse=True)
def new_connections() -> None:
    """Drops the connections of earlier tests, because they do not know this test's bucket."""
    reader_module._idle.clear()


@pytest.fixture
def settings(object_store: ObjectStore, tmp_path: Path) -> Settings:
    (tmp_path / "kappa.toml").write_text(
        f"root = 'disk'\nlocal = 'own'\n[storage]\nendpoint = {object_store.storage.endpoint!r}\n"
        "[kafka]\nbootstrap_servers = '127.0.0.1:9'\n"
    )
    return load_settings(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Returns a root on a disk, in which something serves."""
    store = Store(tmp_path / "disk")
    tables = {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}
    views = {"busy": "select carrier from delays where flights > 3"}
    Platform(store).serve("flights", tables, views)
    ensure_lease(store, Lease(1, "me", 9e9, {"flights-1": Pin(1, {"delays": 0})}, id="l"))
    # What a host keeps for itself.
    for name in ("logs/supervisor.log", "builds/flights-1/lock", "builds/flights-1/slice/a"):
        store.put(name, b"mine")
    return store


def opened_at(url: str, settings: Settings) -> Store:
    local = settings.project / "elsewhere"
    return Store(url, storage=settings.storage, local=local)


def contents(store: Store) -> dict[str, bytes | None]:
    return {name: store.get(name) for name in objects_of(store)}


def answers(store: Store) -> list[object]:
    return [Platform(store).ask(sql).rows for sql in QUERIES]


def test_moved_root_is_the_same_and_a_copy_is_not(settings, store, object_store, tmp_path):
    """`kappa root copy` records the new place of the root; a plain copy of the objects does not."""
    first = ensure_root(store)
    bucket = opened_at(copy_root(settings, store, object_store.new_root()).url, settings)
    bucket.control.take(over=False)
    assert ensure_root(bucket) == replace(first, place=RootPlace(bucket.url))

    other = Store(object_store.new_root(), storage=settings.storage, local=tmp_path / "other")
    for name in bucket.names(""):
        put_new_file(other.address(name), bucket.get(name) or b"")
    assert other.get("claim.json") == bucket.get("claim.json")
    assert answers(other) == answers(bucket)
    refusal = f"{other.url} is a copy of root {first.id}"
    with pytest.raises(Copied, match=refusal):
        lock_of(other, LOCK, what="kappa")
    with pytest.raises(Copied, match=refusal):
        Journal(other).append(99, Paused("flights"))

    adopted = adopt_copy(other, sends=False)
    assert (adopted.place, adopted.adopted_from) == (RootPlace(other.url), first.id)
    other.control.take(over=False)
    assert ensure_root(other) == adopted
    # The first one goes on.
    bucket.control.ensure_mine()
    assert read_root(bucket) == replace(first, place=RootPlace(bucket.url))


def without_leases(objects: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: each for name, each in objects.items() if not name.startswith("leases/")}


def test_from_disk_to_bucket_to_disk_all_is_the_same(settings, store, object_store, tmp_path):
    url = object_store.new_root()

    copied = copy_root(settings, store, url)

    bucket = opened_at(url, settings)
    assert copied.objects == copied.copied == len(contents(store)) > 8
    assert contents(bucket) == contents(store)
    assert bucket.names("logs") == bucket.names("builds/flights-1/slice") == ()
    assert read_lease(bucket, "l") == read_lease(store, "l")
    assert answers(bucket) == answers(store)

    more = pa.table({**dict(zip(ROWS_OF_DELAYS.column_names, ROWS_OF_DELAYS.columns, strict=True))})
    Platform(bucket).advance("flights-1", DELAYS, more)
    copy_root(settings, bucket, str(tmp_path / "disk 2"))
    again = Store(tmp_path / "disk 2")
    # On a busy machine the lease of a query is renewed meanwhile.
    assert without_leases(contents(again)) == without_leases(contents(bucket))
    assert answers(again) == answers(bucket) != answers(store)
    records = [[*Journal(each).after(0)] for each in (store, bucket, again)]
    assert records[0] == records[1] == records[2] != []


class DiedError(Exception):
    pass


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_copy_that_is_cut_short_is_no_root_and_is_gone_on_with(settings, store, object_store, at):
    url = object_store.new_root()

    def die(done: int, _of: int) -> None:
        if done == at:
            raise DiedError

    with pytest.raises(DiedError):
        copy_root(settings, store, url, on_progress=die)

    bucket = opened_at(url, settings)
    assert bucket.names("journal") == () or at == 9
    with pytest.raises(Conflict, match="is a copy of file://.* that was cut short"):
        ensure_whole_root(bucket)
    # Meanwhile the platform ran: something is there anew, something is gone.
    store.delete("leases/l.json")
    Platform(store).advance("flights-1", DELAYS, ROWS_OF_DELAYS)
    copied = copy_root(settings, store, url)
    ensure_whole_root(bucket)
    assert contents(bucket) == contents(store)
    assert copied.copied <= copied.objects
    assert answers(bucket) == answers(store)


def test_it_is_refused_while_the_platform_is_up(settings, store, object_store):
    url = object_store.new_root()
    running = Lock(store.local.path(LOCK), what="kappa")
    with running, pytest.raises(Conflict, match="kappa is up") as refused:
        copy_root(settings, store, object_store.new_root())
    assert "kappa down" in refused.value.hint

    opened_at(url, settings).control.take(over=False)
    elsewhere = Store(url, storage=settings.storage, local=settings.project / "third")
    with pytest.raises(Superseded, match="is claimed by host") as claimed:
        copy_root(settings, elsewhere, object_store.new_root())
    assert "--take-over" in claimed.value.hint


def test_from_bucket_to_bucket_after_the_host_that_had_it_is_gone(settings, store, object_store):
    url, to = object_store.new_root(), object_store.new_root()
    copy_root(settings, store, url)
    gone = Store(url, storage=settings.storage, local=settings.project / "gone")
    gone.control.take(over=False)
    ran = ["--project", str(settings.project), "--root", url, "root", "copy", to]
    assert run_command([*ran]) == ExitCode.CONFLICT
    assert opened_at(to, settings).names("") == ()

    assert run_command([*ran, "--take-over"]) == ExitCode.OK

    target = opened_at(to, settings)
    assert contents(target) == contents(opened_at(url, settings)) == contents(store)
    assert answers(target) == answers(store)
    # What the root's new host has claimed it for has ended.
    gone.control.take(over=False)


def test_a_target_that_another_host_has_claimed_is_left_alone(settings, store, object_store):
    url = object_store.new_root()
    opened_at(url, settings).control.take(over=False)

    with pytest.raises(Superseded, match="is claimed by host") as refused:
        copy_root(settings, store, url, take_over=True)

    assert "has nothing below it" in refused.value.hint
    assert opened_at(url, settings).names("") == ("claim.json",)


def test_a_target_that_has_something_is_left_alone(settings, store, object_store, tmp_path):
    other = Store(tmp_path / "other")
    other.put("journal/1.json", b"{}")

    for target in (str(tmp_path / "other"), str(tmp_path / "disk")):
        with pytest.raises(UsageError):
            copy_root(settings, store, target)
    # Nor is one that is becoming another root's copy.
    other.delete("journal/1.json")
    other.put_json("copying.json", {"from": "another"})
    with pytest.raises(UsageError, match="is not empty"):
        copy_root(settings, store, str(tmp_path / "other"))
    assert objects_of(other) == ()


def test_the_command_says_what_to_set(settings, store, object_store, capsys):
    url = object_store.new_root()

    assert run_command(["--project", str(settings.project), "root", "copy", url]) == ExitCode.OK

    told = " ".join(capsys.readouterr().err.split())
    assert f'now set in kappa.toml: root = "{url}"' in told
    assert contents(opened_at(url, settings)) == contents(store)


def test_only_files_that_never_change_are_taken_for_copied():
    data = ["builds/b/tables/t/part-1.parquet", "archive/topic/f/1.parquet"]
    committed = "builds/b/tables/t/_delta_log/00000000000000000010"
    others = [f"{committed}.checkpoint.parquet", f"{committed}.json"]

    found = [*data, *others, "builds/b/identities/t/0/12.parquet"]
    assert [name for name in found if _DATA.fullmatch(name)] == data


def test_a_target_that_can_be_no_root_of_the_project_is_refused_first(settings, store):
    (settings.project / "own" / "journal").mkdir(parents=True)

    with pytest.raises(SettingsError, match="is a root itself"):
        copy_root(settings, store, "s3://kappa-tests/never")


def test_a_folder_is_of_the_project(settings, store):
    copied = copy_root(settings, store, "beside")

    assert copied.url == (settings.project / "beside").as_uri()
    assert contents(Store(settings.project / "beside")) == contents(store)
