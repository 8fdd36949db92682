"""Laws of strangers' queries over tables: the same on a disk and in a bucket."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from asking import Server
from house import SUPPORT
from journals import NOWHERE, staged, verified
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.errors import Damaged, UsageError
from kappa.commands.app import run_command
from kappa.kafka.broker_requests import wait_until
from kappa.replay.status.doctor.examine import examine_root
from kappa.replay.status.doctor.scrub import scrub_root
from kappa.serving.query.pin import shared_pins
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.sandbox.question import Allowance, Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import table_path
from kappa.state.files.address import delete_file, read_file, write_file
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import CaughtUp
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.store import Store
from kappa.tables.versions import files

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("new_connections")]

VIEWS = {"busy": "select carrier from delays where flights > 3"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Allowance(at_once=2)) as made:
        yield made


def serving(store: Store) -> Platform:
    platform = Platform(store)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}, VIEWS)
    return platform


def rows(sandbox: Sandbox, platform: Platform, sql: str) -> list[list[object]]:
    with sandbox.ask_query(platform.store, Question(sql)).body as body:
        return [[*each.values()] for each in json.load(body)["rows"]]


def test_a_stranger_reads_what_is_served(sandbox, any_store):
    platform = serving(any_store)

    assert rows(sandbox, platform, "from delays order by all") == [["UA", 3], ["ÅÄ", 4], [None, 5]]
    assert rows(sandbox, platform, "from flights.planes") == [["N1", 100]]
    assert rows(sandbox, platform, "from busy order by all") == [["ÅÄ"], [None]]
    assert rows(sandbox, platform, "select count(*) as n from rejects") == [[0]]
    assert rows(sandbox, platform, "describe delays")[0][0] == "carrier"
    assert rows(sandbox, platform, "select 1 as n") == [[1]]
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
    assert rows(sandbox, platform, "select count(*) as n from delays") == [[6]]


def test_what_is_wrong_with_a_query_is_said_alike(sandbox, any_store):
    platform = serving(any_store)

    with pytest.raises(UsageError, match=r"there is no table delay \(did you mean delays\?\)"):
        rows(sandbox, platform, "from delay")
    with pytest.raises(UsageError, match='"flight" not found'):
        rows(sandbox, platform, "select flight from delays")
    with pytest.raises(UsageError, match="looks outside of the tables"):
        rows(sandbox, platform, "from read_csv('/etc/passwd')")


def test_the_files_of_the_tables_that_a_query_names_are_fetched_once(sandbox, store, between):
    platform = serving(store)

    with between.counting() as requests:
        rows(sandbox, platform, "from busy")
        rows(sandbox, platform, "from delays")

    size, content = [each for each in requests if ".parquet" in each]
    assert (size.split()[0], content.split()[0]) == ("HEAD", "GET")
    assert "/tables/delays/" in content
    # A newer server has what an earlier one has fetched.
    again = Platform(Store(store.url, storage=between.storage, local=store.local.folder))
    with between.counting() as requests:
        rows(sandbox, again, "from delays")
    assert [each for each in requests if ".parquet" in each] == []


def test_a_flipped_bit_of_an_object_is_refused(sandbox, store, between, tmp_path):
    """A server's objects may rot too, so a whole object is compared when it is fetched (I14)."""
    platform = serving(store)
    (file,) = files(table_path(store, "flights-1", "delays"), 0, None)
    whole, draw = read_file(file), random.Random(48)
    for trial in range(5):
        rotten = bytearray(whole)
        rotten[draw.randrange(len(whole))] ^= 1 << trial
        write_file(file, bytes(rotten))
        local = tmp_path / f"other-{trial}"
        other = Platform(Store(store.url, storage=between.storage, local=local))
        with pytest.raises(Damaged, match=f"delays/{file.rsplit('/', 1)[-1]} of pipeline flights"):
            rows(sandbox, other, "from delays")
        assert rows(sandbox, other, "from flights.planes") == [["N1", 100]]

    write_file(file, whole)
    # The copy that was fetched is not kept.
    assert len(rows(sandbox, other, "from delays")) == 3
    assert len(rows(sandbox, platform, "from delays")) == 3


def test_a_scrub_reads_the_objects_of_a_bucket(store):
    """A scrub finds a flipped bit, and a list of the objects shows an object that was cut."""
    platform = Platform(store)
    for number, event in enumerate((staged("flights-1"), CaughtUp(1, NOWHERE), verified(1)), 1):
        assert Journal(store).append(number, event)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
    (file, _) = files(table_path(store, "flights-1", "delays"), 1, None)
    whole = read_file(file)
    rotten = bytearray(whole)
    rotten[len(whole) // 2] ^= 4

    found = scrub_root(store)
    assert (found.bad, found.unknown, found.files) == ((), 0, 2)
    assert examine_root(store, now=0.0) == ()
    write_file(file, bytes(rotten))
    (bad,) = scrub_root(store).bad
    assert (bad.path, bad.of, bad.table) == (file, "flights-1", "delays")
    assert "its CRC was" in bad.why
    assert "kappa replay flights" in bad.hint
    for cut in (whole[:100], b""):
        write_file(file, cut)
        (damage,) = examine_root(store, now=0.0)
        assert f"{file} is not as it was written: it had {len(whole)} bytes" in damage.what


def test_what_was_fetched_may_be_lost(sandbox, store):
    platform = serving(store)
    before = rows(sandbox, platform, "from delays")
    shutil.rmtree(store.local.path("fetched"))

    assert rows(sandbox, platform, "from delays") == before


def test_nothing_of_a_query_is_left_but_what_was_fetched(sandbox, store):
    rows(sandbox, serving(store), "from delays")

    (of_this_boot,) = store.local.path("fetched").iterdir()
    (kept,) = of_this_boot.iterdir()
    assert len(kept.name) == 64


def test_tables_of_more_bytes_than_may_be_fetched_are_too_much(
    sandbox, object_store, between, tmp_path
):
    storage = type(between.storage)(endpoint=between.storage.endpoint, cache="0m")
    platform = serving(Store(object_store.new_root(), storage=storage, local=tmp_path / "local"))

    with pytest.raises(TooMuch, match="files that queries read now have more than"):
        rows(sandbox, platform, "from delays")
    assert rows(sandbox, platform, "select 1 as n") == [[1]]


def test_a_file_that_is_gone_is_an_error_and_takes_no_room(sandbox, store):
    platform = serving(store)
    (name,) = [
        each
        for each in store.names("builds/flights-1/tables/delays")
        if each.endswith(".parquet") and "_delta_log" not in each
    ]
    content = store.get(name)
    store.delete(name)
    with pytest.raises(Damaged):
        rows(sandbox, platform, "from delays")

    store.put(name, content)
    assert len(rows(sandbox, platform, "from delays")) == 3


def test_a_query_reads_no_file_that_was_fetched_for_another(store):
    platform = serving(store)
    # Its first barrier, the check of the parser's tree, is missing.
    with Sandbox(
        Allowance(at_once=1), program=(str(SUPPORT / "unchecked_fork_server.py"),)
    ) as open_:
        assert len(rows(open_, platform, "from delays")) == 3
        (kept,) = store.local.path("fetched").iterdir()
        for attack in (f"'{kept}'", f"read_parquet('{kept}')", f"glob('{kept.parent}/*')"):
            with pytest.raises(UsageError):
                rows(open_, platform, f"from {attack}")


def test_who_asks_again_at_the_same_frontiers_only_looks(store, between, monkeypatch):
    monkeypatch.setattr(shared_pins, "_IDLE_SECONDS", 5.0)
    platform = serving(store)
    before = platform.ask("select seats from planes").rows
    (lease,) = store.names("leases")

    with between.counting() as requests:
        assert platform.ask("select seats from planes").rows == before

    # Frontiers, and the next one; the floor and the journal; the lease.
    assert len(requests) <= 5, requests
    assert all(each.startswith("GET ") for each in requests), requests
    assert store.names("leases") == (lease,)
    wait_until(lambda: store.names("leases") == (), "the end of the lease")


def test_what_is_read_beside_the_second_look_fails_no_pin(any_store):
    serving(any_store)
    given: list[Snapshot] = []

    def fails(snapshot: Snapshot) -> None:
        given.append(snapshot)
        raise Damaged("a table that the query does not name", hint="none")

    with pin_served(any_store, lease_seconds=60, beside=fails) as pinned:
        assert [*pinned.snapshot.frontiers] == ["flights-1"]
    # A disk answers too soon for it.
    assert given == ([] if any_store.is_on_disk else [pinned.snapshot])


def test_over_http_a_snapshot_answers_again_what_it_answered(any_store):
    platform = serving(any_store)

    with Server(any_store, Allowance(at_once=1)) as server:
        first = server.query("select count(*) as n from delays", X_Kappa_Snapshot="new")
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
        now = server.query("select count(*) as n from delays")
        again = server.query(
            "select count(*) as n from delays",
            X_Kappa_Snapshot=first.headers["x-kappa-snapshot"],
        )

    counts = [each.document["rows"][0]["n"] for each in (first, now, again)]
    assert counts == [3, 6, 3]


def test_commands_read_a_root_in_a_bucket_now_and_as_it_was(object_store, tmp_path, capsys):
    root = object_store.new_root()
    (tmp_path / "kappa.toml").write_text(
        f'root = "{root}"\n[storage]\nendpoint = "{object_store.storage.endpoint}"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n',
        encoding="utf-8",
    )
    store = Store(root, storage=object_store.storage, local=tmp_path / ".kappa")
    platform = serving(store)
    first = Frontiers(store, "flights-1").newest()
    put_kept_frontier(store, KeptFrontierRecord(first, (1,), stays=True))
    then = datetime.now(UTC).isoformat()
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

    def said(*typed: str) -> str:
        assert run_command(["--project", str(tmp_path), *typed]) == 0
        return capsys.readouterr().out

    counted = ("query", "-o", "csv", "select count(*) as n from delays")
    assert said(*counted) == "n\n6\n"
    assert said(*counted, "--at", then) == "n\n3\n"
    typed = [sys.executable, "-m", "cli", "--project", str(tmp_path), *counted]
    subprocess.run(typed, check=True, cwd=SUPPORT.parents[1], stdout=subprocess.DEVNULL)
    wait_until(lambda: store.names("leases") == (), "the end of the lease of a process that ended")
    said("query", "select carrier from delays order by 1 limit 1", "--out", f"{tmp_path}/first.csv")
    assert (tmp_path / "first.csv").read_text(encoding="utf-8") == "carrier\nUA\n"
    assert "delays" in said("tables")


def test_a_file_that_is_gone_fails_the_queries_that_need_it_by_name(sandbox, any_store):
    platform = serving(any_store)
    (path,) = files(table_path(any_store, "flights-1", "delays"), 0, None)
    delete_file(path)

    with pytest.raises(Damaged, match="file builds/flights-1/tables/delays/part-"):
        platform.ask("from busy")
    assert platform.ask("select seats from planes").rows == ((100,),)
    with pytest.raises(Damaged, match="file builds/flights-1/tables/delays/part-"):
        rows(sandbox, platform, "from busy")
    assert rows(sandbox, platform, "select seats from planes") == [[100]]
