"""Laws of the claim: of two control hosts one writes, and no write of a stopped one is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from between import Between
from botocore.session import get_session
from house import HOUSE
from http_server import QuietHandler
from msgspec.structs import replace
from object_store import BUCKET, ObjectStore, running_object_store
from programs import run_python
from writers import make_mark

from kappa.base.errors import (
    Broken,
    Conflict,
    Damaged,
    ExitCode,
    KappaError,
    SettingsError,
    Superseded,
)
from kappa.base.failpoint import acting
from kappa.base.sections import StorageSettings
from kappa.commands.app import run_command
from kappa.engine.job.legs import Leg, LegKind, Legs
from kappa.engine.slice import ensure_follows
from kappa.engine.write.publisher import Publisher
from kappa.state.build import Birth
from kappa.state.files.claim import NAME
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.lease import Lease, ensure_lease, ensure_released
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.delta import Guard
from kappa.tables.durable_versions import take_back
from kappa.tables.stored_table import StoredTable, ensure_table, open_table

pytestmark = pytest.mark.slow
FAILPOINTS = [
    *("claim.before_take", "claim.after_take"),
    *("claim.before_release", "claim.after_release"),
]
BIRTH = Birth("b", "p", "v", {}, 1, {}, "m", (), (), {}, {}, {}, "", "")
# It names no table, as do those that follow it: what is tried here is who puts them.
FIRST = Frontier(1, "b", 1, Offsets(), {}, "")
COLUMNS = [("k", "bigint")]
_OTHER = "claimed by host .* kappa up --take-over"


def mark(offset: int) -> Mark:
    return make_mark(offset - 1, number=offset)


def begun(store: Store) -> Publisher:
    publisher = Publisher(store, BIRTH, hold_seconds=10)
    publisher.take_over()
    publisher.begin(FIRST)
    return publisher


def newest_of(store: Store) -> tuple[int, int]:
    """Returns the newest frontier's epoch and offset."""
    newest = Frontiers(store, "b").newest()
    assert newest is not None
    return newest.epoch, newest.offsets.at("x", 0)


class Hosts:
    """Hosts of one root, each with its own folder; requests of the first host pass a proxy."""

    def __init__(self, object_store: ObjectStore, between: Between, folder: Path) -> None:
        self.url = object_store.new_root()
        self.between = between
        self._direct = object_store.storage
        self._folder = folder

    def store(self, host: str) -> Store:
        storage = self.between.storage if host == "old" else self._direct
        return Store(self.url, storage=storage, local=self._folder / host)

    def old(self) -> Store:
        store = self.store("old")
        store.control.take(over=False)
        return store

    def new(self) -> Store:
        store = self.store("new")
        store.control.take(over=True)
        return store

    def stop_old_before(self, put: str, meanwhile: Callable[[], object]) -> None:
        """Suspends the old host between its look at the claim and its next matching PUT."""
        forwarded, stopped = self.between.arrives, []

        def arrives(line: str) -> tuple[bool, bool]:
            if line.startswith("PUT ") and put in line and not stopped:
                stopped.append(line)
                meanwhile()
            return forwarded(line)

        self.between.arrives = arrives  # type: ignore[method-assign]  # the request waits here


@pytest.fixture
def hosts(object_store: ObjectStore, between: Between, tmp_path: Path) -> Hosts:
    return Hosts(object_store, between, tmp_path)


def test_a_second_host_is_refused_and_told_who_has_the_root(hosts):
    hosts.old()

    with pytest.raises(Superseded, match=_OTHER) as refused:
        hosts.store("new").control.take(over=False)
    assert os.uname().nodename in refused.value.message
    assert str(os.getpid()) in refused.value.message


def test_of_hosts_that_claim_at_once_one_wins(hosts):
    stores = [hosts.store(f"host {number}") for number in range(6)]
    barrier, won = threading.Barrier(len(stores)), []

    def claim(store: Store) -> None:
        barrier.wait()
        try:
            store.control.take(over=False)
            won.append(store)
        except (Conflict, Superseded):
            pass

    threads = [threading.Thread(target=claim, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (winner,) = won
    winner.control.ensure_mine()
    for store in stores:
        if store is not winner:
            with pytest.raises(Superseded):
                store.control.ensure_mine()


class Heedless(QuietHandler):
    """An S3 server that keeps objects, but ignores one of the two conditions of a put."""

    protocol_version = "HTTP/1.1"
    ignored = ""
    objects: dict[str, bytes] = {}  # noqa: RUF012  # each server has a class of its own

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        there, tag = self.objects.get(self.path), self.headers["If-Match"]
        may = self.headers["If-None-Match"] is None or there is None
        may &= tag is None or (there is not None and tag == self._tag(there))
        if may := may or self.ignored in self.headers:
            self.objects[self.path] = content
        self._answer(200 if may else 412, content)

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            named = "".join(
                f"<Contents><Key>{name.removeprefix('/bucket/')}</Key><Size>1</Size>"
                "<LastModified>2026-11-29T00:00:00.000Z</LastModified></Contents>"
                for name in self.objects
            )
            told = f"<ListBucketResult><IsTruncated>false</IsTruncated>{named}</ListBucketResult>"
            self._answer(200, b"", body=told.encode())
            return
        there = self.objects.get(self.path)
        self._answer(404 if there is None else 200, there or b"", body=there or b"")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        (name,) = re.findall("<Key>(.*?)</Key>", asked.decode())
        self.objects.pop(f"/bucket/{name}", None)
        told = f"<DeleteResult><Deleted><Key>{name}</Key></Deleted></DeleteResult>"
        self._answer(200, b"", body=told.encode())

    def _tag(self, content: bytes) -> str:
        return f'"{zlib.crc32(content)}"'

    def _answer(self, status: int, content: bytes, body: bytes = b"") -> None:
        at = "Sun, 29 Nov 2026 00:00:00 GMT"
        self.send(status, body, ETag=self._tag(content), Last_Modified=at)


@pytest.mark.usefixtures("object_store")  # for credentials
@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match", ""])
def test_a_server_that_puts_whatever_the_condition_has_no_root(tmp_path, ignored):
    handler = type("Handler", (Heedless,), {"ignored": ignored, "objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        storage = StorageSettings(endpoint=f"http://127.0.0.1:{server.server_port}")
        store = Store("s3://bucket/kappa", storage=storage, local=tmp_path)
        try:
            if ignored:
                with pytest.raises(SettingsError, match="ignores If-None-Match"):
                    store.control.take(over=False)
            else:
                store.control.take(over=False)
                store.control.ensure_mine()
        finally:
            server.shutdown()
    # Whoever refuses it does not keep it.
    (content,) = handler.objects.values()
    assert json.loads(content)["released"] == bool(ignored)


def test_a_bucket_that_puts_no_deleted_name_again_has_no_root(tmp_path, monkeypatch, object_store):
    """A bucket that refuses the names of deleted objects can hold no root.

    A job must be able to put the commit again that it has taken back from a dead job. versitygw
    1.8.0 refuses that once a bucket has had versions.
    """
    (tmp_path / "versions").mkdir()
    monkeypatch.setenv("VGW_VERSIONING_DIR", f"{tmp_path}/versions")
    # Each root of a process has a URL of its own.
    url = object_store.new_root()
    with running_object_store(tmp_path / "objects") as server:
        client = get_session().create_client(
            "s3", endpoint_url=server.storage.endpoint, region_name="us-east-1"
        )
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        store = Store(url, storage=server.storage, local=tmp_path / "local")

        with pytest.raises(SettingsError, match="puts no name again that was deleted"):
            store.control.take(over=False)
        assert json.loads(store.get(NAME))["released"]


def test_the_same_host_goes_on_and_a_released_root_is_anybodys(hosts):
    hosts.old()
    again = hosts.old()

    again.control.release()
    other = hosts.store("new")
    other.control.take(over=False)

    other.put("a", b"mine")
    # What ends late releases nothing of the next host's.
    again.control.release()
    other.control.ensure_mine()
    with pytest.raises(Superseded, match=_OTHER):
        hosts.old()


def test_a_copied_folder_of_the_host_has_not_its_claim(hosts, tmp_path):
    """A host folder that was copied to another machine with its project does not hold the claim."""
    hosts.old()
    shutil.copytree(tmp_path / "old", tmp_path / "copy")

    with pytest.raises(Superseded, match=_OTHER):
        hosts.store("copy").control.take(over=False)
    with pytest.raises(Superseded, match=_OTHER):
        hosts.store("copy").control.ensure_mine()

    (tmp_path / "old").rename(tmp_path / "moved")
    hosts.store("moved").control.take(over=False)


def test_an_answer_that_is_lost_is_no_lost_claim(hosts, between):
    store = hosts.store("old")

    with between.losing("PUT", NAME):
        store.control.take(over=False)

    store.put("a", b"mine")


@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_host_that_dies_anywhere_claims_its_root_again(hosts, place):
    class DiedError(Exception):
        pass

    def die(name: str) -> None:
        if name == place:
            raise DiedError

    store = hosts.store("old")
    if "release" in place:
        store.control.take(over=False)
    with pytest.raises(DiedError), acting(die):
        store.control.release() if "release" in place else store.control.take(over=False)

    hosts.old().put("a", b"mine")


# Claims a root, over another host's claim or not, and gives it back.
_HOST = """
import sys
from pathlib import Path
from kappa.base.sections import StorageSettings
from kappa.state.store import Store
root, endpoint, folder, over = sys.argv[1:]
store = Store(root, storage=StorageSettings(endpoint=endpoint), local=Path(folder))
store.control.take(over=over == "over")
store.control.release()
"""


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.parametrize("over", ["over", "alone"])
def test_a_host_that_is_killed_anywhere_claims_its_root_again(hosts, object_store, tmp_path, over):
    if over == "over":
        hosts.old()
    arguments = ["-c", _HOST, hosts.url, object_store.storage.endpoint, tmp_path / "new", over]
    for place in FAILPOINTS:
        killed = run_python(*arguments, PYTHONPATH=str(HOUSE), KAPPA_FAIL=f"{place}:kill")
        assert killed.returncode == -signal.SIGKILL, place

    store = hosts.store("new")
    store.control.take(over=False)
    store.put("a", b"mine")


def test_a_claim_that_cannot_be_read_is_named(hosts):
    store = hosts.store("old")
    store.put(NAME, b"{")

    with pytest.raises(Damaged, match=r"claim\.json cannot be read"):
        store.control.take(over=False)


def test_a_host_whose_root_was_taken_over_changes_nothing(hosts):
    old = hosts.old()
    old.put("a", b"old")
    publisher = begun(old)
    hosts.new()

    for change in (
        lambda: old.put("a", b"late"),
        lambda: old.put_new("b", b"late"),
        lambda: old.delete("a"),
        lambda: old.set_aside("a"),
        lambda: Journal(old).append(1, Paused("p")),
        lambda: publisher.publish(mark(1), {}),
        lambda: begun(old),
        old.control.ensure_mine,
    ):
        with pytest.raises(Superseded, match=_OTHER):
            change()
    assert old.get("a") == b"old"
    assert old.get("b") is None


def test_a_reader_needs_no_claim(hosts):
    hosts.old().put("a", b"mine")
    elsewhere = hosts.store("laptop")

    assert elsewhere.get("a") == b"mine"
    ensure_lease(elsewhere, Lease(1, "me", 100.0, {}, id="l"))
    ensure_released(elsewhere, "l")
    with pytest.raises(Superseded, match=_OTHER):
        elsewhere.delete("a")


def test_a_journal_record_of_a_host_that_was_stopped_before_its_put_is_refused(hosts):
    old = Journal(hosts.old())
    hosts.stop_old_before("/journal/", lambda: Journal(hosts.new()).append(1, Paused("new")))

    assert old.append(1, Paused("old")) is None

    assert [each.event for each in Journal(hosts.store("new")).after(0)] == [Paused("new")]


def test_a_frontier_of_a_host_that_was_stopped_before_its_put_is_refused(hosts):
    publisher = begun(hosts.old())
    publisher.publish(mark(1), {})
    hosts.stop_old_before("/frontier/", lambda: begun(hosts.new()))

    with pytest.raises(Broken, match="put by another process"):
        publisher.publish(mark(2), {})

    assert newest_of(hosts.store("new")) == (2, 1)


def test_a_job_that_was_stopped_as_it_began_fences_nobody(hosts):
    begun(hosts.old())

    hosts.stop_old_before("/frontier/", lambda: begun(hosts.new()).publish(mark(1), {}))

    with pytest.raises(Superseded, match=_OTHER):
        begun(hosts.store("old"))

    assert newest_of(hosts.store("new")) == (2, 1)


def test_a_leg_of_a_host_that_was_stopped_before_its_put_is_refused(hosts):
    old, mine = Legs(hosts.old(), "b"), Leg(1, LegKind.TAIL, Offsets({"x": {0: 1}}))
    hosts.stop_old_before("/legs/", lambda: Legs(hosts.new(), "b").begin(mine))

    with pytest.raises(Broken):
        old.begin(replace(mine, start=Offsets({"x": {0: 2}})))

    assert Legs(hosts.store("new"), "b").last() == mine


def rows(*numbers: int) -> pa.Table:
    return pa.table({"k": pa.array(numbers, pa.int64())})


def commit(table: StoredTable, number: int) -> None:
    table.append(rows(number), mark(number), Guard("b/t/1", number))


def opened(path: str) -> StoredTable:
    table = open_table(path)
    assert table is not None
    return table


def test_a_job_names_no_commit_that_another_hosts_job_has_made(any_store):
    path = any_store.address("builds/b/tables/t")
    old = ensure_table(path, COLUMNS, mark(0))
    commit(old, 1)
    # The new host's job takes that commit back, and the old job commits the next one.
    take_back(path, 0)
    mine = opened(path)
    commit(mine, 1)
    commit(old, 2)

    # At its own next commit, at a look for its own, and as it opens the table.
    with pytest.raises(KappaError):
        commit(mine, 2)
    found = opened(path)
    with pytest.raises(KappaError, match="another process writes there"):
        mine.go_on_with(found)
    first, next_slice = replace(FIRST, versions={"t": 1}), Slice(1, 0, Offsets(), mark(1).end)
    with pytest.raises(KappaError, match="another process writes there"):
        ensure_follows(first, next_slice, {"t": found.version})
    take_back(path, 1)
    commit(opened(path), 2)


OLD_HOST = """
import sys
from pathlib import Path
from kappa.base.sections import StorageSettings
from kappa.state.store import Store
sys.path.insert(0, sys.argv[1])
from test_claim import begun, mark
url, endpoint, local = sys.argv[2:]
store = Store(url, storage=StorageSettings(endpoint=endpoint), local=Path(local))
store.control.take(over=False)
publisher = begun(store)
for number in range(1, 100_000):
    publisher.publish(mark(number), {})
    print(number, flush=True)
"""


def test_an_old_host_that_was_stopped_and_wakes_up_writes_nothing(hosts, object_store, tmp_path):
    support = HOUSE / "tests" / "support"
    arguments = (str(Path(__file__).parent), hosts.url, str(object_store.storage.endpoint))
    with subprocess.Popen(
        [sys.executable, "-c", OLD_HOST, *arguments, str(tmp_path / "old")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{HOUSE}:{support}"},
        text=True,
    ) as old:
        assert old.stdout is not None
        for _ in range(3):
            assert old.stdout.readline().strip(), old.communicate()[1]
        os.kill(old.pid, signal.SIGSTOP)
        store = hosts.new()
        publisher = begun(store)
        at = publisher.newest.offsets.at("x", 0)
        publisher.publish(mark(at + 1), {})

        os.kill(old.pid, signal.SIGCONT)
        _, told = old.communicate(timeout=60)

    assert old.returncode == 1
    # Stopped within a put it finds its number taken, else the claim.
    assert "Superseded: the root" in told or "was put by another process" in told
    assert Frontiers(store, "b").newest() == publisher.newest
    assert newest_of(store) == (2, at + 1)


def test_kappa_up_is_refused_on_a_second_host(hosts, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hosts.old()
    (tmp_path / "kappa.toml").write_text(
        f"root = {hosts.url!r}\n[storage]\nendpoint = {hosts.between.storage.endpoint!r}\n"
        "[kafka]\nbootstrap_servers = '127.0.0.1:9'\n"
    )

    assert run_command(["up"]) == ExitCode.CONFLICT

    told = " ".join(capsys.readouterr().err.split())
    assert f"claimed by host {os.uname().nodename} (process {os.getpid()}, since" in told
    assert "kappa up --take-over" in told
