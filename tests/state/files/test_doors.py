"""Laws of puts into a bucket: any answer may be lost, and looks cost little.

What is put survives the loss of its answer, and nobody takes it for another process's. An idle look
at the root costs a few requests, however large the root is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from between import Between
from clocks import Clock
from msgspec.structs import replace
from object_store import ObjectStore

from kappa.base.clock import now
from kappa.base.errors import Broken, KappaError
from kappa.base.sections import RegistrySettings
from kappa.code.code_snapshot import ensure_snapshot, hash_files, read_snapshot
from kappa.declare.formats.registry_schemas import RegisteredSchema
from kappa.engine.job.legs import Leg, LegKind, Legs
from kappa.engine.job.splits import Splits
from kappa.engine.write.publisher import Publisher
from kappa.kafka.stored_schemas import FOLDER as SCHEMAS
from kappa.kafka.stored_schemas import RootSchemas
from kappa.records.decode.identity_file import get_memory, put_memory
from kappa.records.identity import Memory
from kappa.replay.page.intents import do_once
from kappa.replay.platform.idle_builds import WatchedBuild
from kappa.replay.status.doctor.examine import Damage
from kappa.replay.status.doctor.repair import repair_root
from kappa.serving.collect.pulled.source_protocol import PullPosition, put_position, read_position
from kappa.serving.outlets.alerts.channels import ShownOnPage
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    DeadLetter,
    Outbox,
    ask_to_send_again,
    dead_letters,
    ids_to_send_again,
    put_alert_progress,
    put_dead_letter,
    put_outbox,
    read_alert_progress,
    read_outbox,
    shown_messages,
)
from kappa.serving.query.pin.catalog import pin_served
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import Birth, birth_copy, birth_name, put_birth, read_birth, table_path
from kappa.state.build_status import (
    ViewCheck,
    put_stopped,
    put_view_check,
    read_stopped,
    read_view_check,
)
from kappa.state.documents import Documents
from kappa.state.files.address import copy_file, file_exists
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier, read_kept_frontier
from kappa.state.lease import (
    Lease,
    Pin,
    ensure_lease,
    ensure_released,
    ensure_renewed,
    live_leases,
    put_floor,
    read_floor,
    read_lease,
)
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.root import ensure_root, read_root
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark
from kappa.tables.checkpoint import ensure_checkpoint, hinted
from kappa.tables.delta import Guard
from kappa.tables.durable_versions import take_back
from kappa.tables.stored_archive import StoredArchive, ensure_archive
from kappa.tables.stored_table import StoredTable, ensure_table

pytestmark = pytest.mark.slow

AT = Offsets({"t": {0: 5}})
LEASE = Lease(1, "me", 100.0, {"b": Pin(3, {"hits": 7})})
FRONTIER = Frontier(1, "b", 1, AT, {"hits": 1}, "now")
BIRTH = Birth("b", "p", "v", {}, 1, {}, "m", (), (), {}, AT.plain(), {}, now(), "me")
CHECK = ViewCheck(AT, ("view v is unlike its text",), "then")
PIECE = Slice(1, 0, Offsets({"t": {0: 0}}), AT)
MARK = Mark("b", "t", 1, 0, Offsets(), Offsets())
ARCHIVED = ArchiveMark("t", "id", "f", {0: 0}, {0: 0})
MESSAGE = Message("id", "{}")
PLACE = PullPosition("of", last_event_id="7")
CODE = {"pipelines/p.py": b"code"}
SCHEMA = RegisteredSchema("AVRO", "text")
HORIZON_MS = 1_000
MEMORY = Memory(HORIZON_MS, {bytes(16): 90})
# In three parts.
LARGE = bytes(11 * 2**20)
SERVED = Served(1, 1, {"p": "b"}, Receipt("p", "b", "v", AT, None, None, first=True))


@dataclass(frozen=True)
class Door:
    """An act that puts something, what is there after it, and the request whose answer is lost."""

    act: Callable[[Store], object]
    found: Callable[[Store], object]
    method: str = "PUT"
    # The end of the request's name.
    name: str = ""


def _begin_twice(store: Store) -> None:
    Splits(store, "b").begin(PIECE)
    Splits(store, "b").begin(PIECE)


def _split(store: Store) -> None:
    _begin_twice(store)
    assert len(Splits(store, "b").parts(PIECE)) == 5


def _asked_once(store: Store) -> object:
    return do_once(store, "key", {"deploy": "p"}, lambda: {"rollout": 1})


def _schema(store: Store) -> object:
    store.local.put(f"{SCHEMAS}/7.json", msgspec.json.encode(SCHEMA))
    return RootSchemas(store, RegistrySettings(), 0.0).schema(7)


def _move_aside(store: Store) -> None:
    store.put("a", b"damaged")
    assert store.set_aside("a")


def _has_moved_aside(store: Store) -> bool:
    (moved,) = store.names("damaged")
    return store.get("a") is None and store.get(moved) == b"damaged"


def _put_copy_back(store: Store) -> None:
    store.put_json(birth_copy("b"), Documents(Birth).plain(BIRTH))
    assert repair_root(store, [Damage("it is gone", "", (birth_name("b"),))]) == ()


def _memories(store: Store) -> str:
    return store.address("builds/b/identities/paid")


def _has_memory(store: Store) -> bool:
    memory, log_time = get_memory(_memories(store), 0, 9, HORIZON_MS)
    return memory.within(100) == MEMORY.within(100) and log_time == 100


DOORS = {
    "journal": Door(
        lambda store: _has_put(Journal(store).append(1, SERVED)),
        lambda store: [each.event for each in Journal(store).after(0)] == [SERVED],
    ),
    "birth": Door(
        lambda store: _has_put(put_birth(store, BIRTH)),
        lambda store: read_birth(store, "b") == BIRTH,
    ),
    "birth again": Door(
        _put_copy_back, lambda store: read_birth(store, "b") == BIRTH, name="/b/birth.json"
    ),
    "root": Door(ensure_root, lambda store: read_root(store) == ensure_root(store)),
    "view check": Door(
        lambda store: put_view_check(store, "b", CHECK),
        lambda store: read_view_check(store, "b") == CHECK,
    ),
    "frontier": Door(
        lambda store: Frontiers(store, "b").publish(FRONTIER),
        lambda store: Frontiers(store, "b").newest() == FRONTIER,
    ),
    "leg": Door(
        lambda store: Legs(store, "b").begin(Leg(1, LegKind.TAIL, AT)),
        lambda store: Legs(store, "b").last() == Leg(1, LegKind.TAIL, AT),
    ),
    "alignment": Door(
        lambda store: Alignments(store, "b").put(Alignment(1, FRONTIER, FRONTIER, ("t",), "l")),
        lambda store: Alignments(store, "b").last() is not None,
    ),
    "floor": Door(
        lambda store: put_floor(store, "b", 4), lambda store: read_floor(store, "b") == 4
    ),
    "lease": Door(
        lambda store: ensure_lease(store, LEASE),
        lambda store: live_leases(store, 0.0) == (LEASE,),
    ),
    "kept": Door(
        lambda store: put_kept_frontier(store, KeptFrontierRecord(FRONTIER)),
        lambda store: read_kept_frontier(store, "b", 1) == KeptFrontierRecord(FRONTIER),
    ),
    "split": Door(
        _split, lambda store: len(Splits(store, "b").parts(PIECE)) == 5, name="split.json"
    ),
    "stopped": Door(
        lambda store: put_stopped(store, "b", Broken("why", hint="what")),
        lambda store: read_stopped(store, "b").text == "why (what)",
    ),
    "asked once": Door(_asked_once, lambda store: _asked_once(store) == {"rollout": 1}),
    "outbox": Door(
        lambda store: put_outbox(store, "a", Outbox(1, "cursor", 2.0, (MESSAGE,))),
        lambda store: read_outbox(store, "a") == Outbox(1, "cursor", 2.0, (MESSAGE,)),
    ),
    "progress": Door(
        lambda store: put_alert_progress(store, "a", AlertProgress(1, settled=3)),
        lambda store: read_alert_progress(store, "a") == AlertProgress(1, settled=3),
    ),
    "dead letter": Door(
        lambda store: put_dead_letter(store, "a", DeadLetter(MESSAGE, "why", 9, "then")),
        lambda store: len(dead_letters(store, "a")) == 1,
    ),
    "dead letter again": Door(
        lambda store: ask_to_send_again(store, "a", "id"),
        lambda store: ids_to_send_again(store, "a") == ("id",),
    ),
    "shown": Door(
        lambda store: ShownOnPage(store, "a").send(MESSAGE),
        lambda store: shown_messages(store, "a") == (MESSAGE,),
    ),
    "pulled": Door(
        lambda store: put_position(store, "shop", PLACE),
        lambda store: read_position(store, "shop", "of") == PLACE,
    ),
    "snapshot": Door(
        lambda store: ensure_snapshot(store, "b", CODE),
        lambda store: read_snapshot(store, replace(BIRTH, sources=hash_files(CODE))) == CODE,
    ),
    "memory": Door(lambda store: put_memory(_memories(store), 0, 9, MEMORY, 100), _has_memory),
    "schema": Door(_schema, lambda store: store.names(SCHEMAS) == (f"{SCHEMAS}/7.json",)),
    "aside": Door(_move_aside, _has_moved_aside, name="/a"),
    "no more there": Door(_move_aside, _has_moved_aside, method="POST"),
}


def _has_put(answer: object) -> None:
    assert answer


@pytest.mark.parametrize("door", DOORS)
def test_an_answer_that_is_lost_at_a_door_is_no_lost_race(store, between, door):
    with between.losing(DOORS[door].method, DOORS[door].name):
        DOORS[door].act(store)

    assert DOORS[door].found(store)


def _table(store: Store) -> StoredTable:
    table = ensure_table(table_path(store, "b", "t"), [("k", "bigint")], MARK)
    assert table.version == 0
    return table


def _table_taken_back(store: Store) -> None:
    table = _table(store)
    for number in (1, 2):
        table.append(pa.table({"k": [number]}), MARK, Guard("a", number))
    take_back(table.path, 0)


def _checkpointed(store: Store) -> None:
    ensure_checkpoint(store, _table(store).path, 0, None)


def _has_checkpoint(store: Store) -> bool:
    log = f"{table_path(store, 'b', 't')}/_delta_log"
    return hinted(f"{log}/_last_checkpoint") == 0 and file_exists(
        f"{log}/{0:020d}.checkpoint.parquet"
    )


def _archive(store: Store) -> StoredArchive:
    path = f"{store.address('archive')}/t/f"
    return ensure_archive(store, path, [("_partition", "int"), ("_offset", "bigint")], ARCHIVED)


def _archive_grown(store: Store) -> None:
    archive = _archive(store)
    archive.append(store, None, (), replace(ARCHIVED, end={0: 9}), Guard("a", 9))


def _has_grown(store: Store) -> bool:
    archive = _archive(store)
    return archive.version == 1 and archive.mark().end == {0: 9}


def _large_file(store: Store) -> None:
    store.local.put("large", LARGE)
    copy_file(str(store.local.path("large")), store.address("large"))


# What delta-rs and parts of a file put: an answer that is lost may be an error of the job or the
# archiver, which begins again.
_CHECKPOINT = f"{0:020d}.checkpoint.parquet"
AGAIN = {
    "table": Door(_table, lambda store: _table(store).mark() == MARK, name=".json"),
    "checkpoint": Door(_checkpointed, _has_checkpoint, name=_CHECKPOINT),
    "hint": Door(_checkpointed, _has_checkpoint, name="_last_checkpoint"),
    "take-back": Door(_table_taken_back, lambda store: _table(store).mark() == MARK, method="POST"),
    "archive": Door(_archive, lambda store: _archive(store).mark() == ARCHIVED, name=".json"),
    "archived": Door(_archive_grown, _has_grown, name=f"{1:020d}.json"),
    "lasting": Door(_archive, lambda store: _archive(store).mark() == ARCHIVED, name="/f.json"),
    "parts begun": Door(_large_file, lambda store: store.get("large") == LARGE, method="POST"),
    "part": Door(_large_file, lambda store: store.get("large") == LARGE),
}


@pytest.mark.parametrize("door", AGAIN)
def test_after_an_answer_that_is_lost_at_a_table_it_is_there_once(store, between, door):
    with between.losing(AGAIN[door].method, AGAIN[door].name):
        _done(lambda: AGAIN[door].act(store))

    assert AGAIN[door].found(store)


# No bucket has these documents: they are of a host, or of files that only a disk has.
OF_A_HOST = {
    *("Begun", "Cuts", "JoinedSums", "RememberedFiles", "Running", "RunningServer"),
    *("SinkState", "SliceProgress", "SupervisorReport", "VerificationProgress", "ViewCosts"),
    *("StepTimes", "_Drifts"),
}
# The programs that put what is no document, by their doors.
BY_HAND = {
    "kappa/code/code_snapshot.py": "snapshot",
    "kappa/records/decode/identity_file.py": "memory",
    "kappa/kafka/stored_schemas.py": "schema",
    "kappa/tables/checkpoint.py": "hint",
    "kappa/state/root.py": "root",
    "replay/status/doctor/repair.py": "birth again",
    "replay/page/intents.py": "asked once",
}
# Caches, which are made again; documents, as above; what a host has; the folder of an export; and
# tests/replay/platform.
AT_NO_DOOR = {
    *("replay/rollout/plan/declared_pipelines.py", "replay/rollout/law.py"),
    *("kappa/state/documents.py", "kappa/state/build_status.py", "replay/platform/copy.py"),
    "serving/outlets/export/exporter.py",
}
PUTS = re.compile(r"\b_?(?:store|target)\.put(?:_new)?(?:_json)?\(|(?<!def )\bwrite_file\(")
DECLARES = re.compile(r"\bDocuments(?:\[\w+\])?\(\s*(\w+)[,)]")


def test_each_kind_of_document_has_a_door(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, plain = set[str](), Documents.plain

    def noted(documents: Documents[Any], record: Any) -> Any:
        put.add(type(record).__name__)
        return plain(documents, record)

    monkeypatch.setattr(Documents, "plain", noted)
    for name, door in (DOORS | AGAIN).items():
        root, local = object_store.new_root(), tmp_path / name
        door.act(Store(root, storage=object_store.storage, local=local))

    kinds = {kind for text in _programs().values() for kind in DECLARES.findall(text)}
    assert kinds == put | OF_A_HOST


def test_a_program_that_puts_what_is_no_document_has_a_door() -> None:
    found = {name for name, text in _programs().items() if PUTS.search(text)}

    assert found == BY_HAND.keys() | AT_NO_DOOR
    assert {*BY_HAND.values()} <= DOORS.keys() | AGAIN.keys()


def _programs() -> dict[str, str]:
    house = Path(__file__).resolve().parents[3]
    return {
        str(path.relative_to(house)): path.read_text(encoding="utf-8")
        for folder in ("kappa", "replay", "serving")
        for path in sorted((house / folder).rglob("*.py"))
    }


def test_a_file_whose_parts_are_joined_without_an_answer_is_there(store, between):
    joined = ("POST ", "/large")
    between.before("PUT", "/large", lambda _: between._losing.append(joined))

    _done(lambda: _large_file(store))

    assert joined not in between._losing
    assert store.get("large") == LARGE


def _done(act: Callable[[], object]) -> None:
    """Acts, and repeats the act after an error, as the next job or archiver does."""
    try:
        act()
    except Broken:
        raise
    except KappaError:
        act()


def test_of_two_jobs_that_publish_the_same_number_one_is_refused(store, between):
    Frontiers(store, "b").publish(FRONTIER)

    with between.losing("PUT"), pytest.raises(Broken, match="frontier 1 of build b was put by"):
        Frontiers(store, "b").publish(replace(FRONTIER, epoch=2))
    assert Frontiers(store, "b").newest() == FRONTIER


def test_a_lease_lives_while_it_is_renewed_until_it_is_released(any_store):
    ensure_lease(any_store, LEASE)

    assert ensure_renewed(any_store, LEASE.id, now=90.0, seconds=60.0)
    assert live_leases(any_store, 140.0) == (replace(LEASE, expires_at=150.0),)
    assert not ensure_renewed(any_store, LEASE.id, now=150.0, seconds=60.0)
    ensure_released(any_store, LEASE.id)
    assert read_lease(any_store, LEASE.id) is None
    assert live_leases(any_store, 0.0) == ()


def test_a_floor_rises_and_never_falls(any_store):
    assert read_floor(any_store, "b") == 0
    for number in (4, 7, 5):
        put_floor(any_store, "b", number)

    assert read_floor(any_store, "b") == 7
    assert len(any_store.names("builds/b/floor")) == 1


def test_a_birth_certificate_is_put_once(any_store):
    assert put_birth(any_store, BIRTH)

    assert not put_birth(any_store, replace(BIRTH, version="w"))
    assert read_birth(any_store, "b") == BIRTH


def test_a_look_costs_a_few_requests_whatever_the_root_has(store, between):
    put_birth(store, BIRTH)
    journal, frontiers = Journal(store), Frontiers(store, "b")
    for number in range(1, 31):
        assert journal.append(number, replace(SERVED, generation=number))
        frontiers.publish(replace(FRONTIER, number=number))

    assert _cost(between, lambda: list(Journal(store).after(30))) == {"GET": 1}
    # A list, and the newest record.
    assert _cost(between, lambda: Frontiers(store, "b").newest()) == {"GET": 2}
    with pin_served(store, lease_seconds=60):
        pass
    with between.counting() as requests, pin_served(store, lease_seconds=60):
        pass
    assert len(requests) <= 20, requests


def test_a_frontier_costs_two_requests_for_its_job(store, between):
    frontiers = Frontiers(store, "b")
    frontiers.publish(FRONTIER)

    cost = _cost(between, lambda: frontiers.publish(replace(FRONTIER, number=2)))
    # A look at the claim is before it.
    assert cost == {"GET": 1, "PUT": 1}


def _cost(between: Between, act: Callable[[], object]) -> dict[str, int]:
    with between.counting() as requests:
        act()
    methods = [each.partition(" ")[0] for each in requests]
    return {method: methods.count(method) for method in methods}


def test_a_record_costs_a_list_from_the_last_known_one(store, between):
    # Its process reads once what the root is: it may be no copy.
    ensure_root(store)
    journal = Journal(store)
    for number in range(1, 6):
        assert journal.append(number, replace(SERVED, generation=number))

    with between.counting() as requests:
        assert journal.append(6, replace(SERVED, generation=6))

    # The list for holes, the look at the claim, and the put.
    methods = [each.partition(" ")[0] for each in requests]
    assert methods == ["GET", "GET", "PUT"], requests
    assert "start-after=" in requests[0]
    assert f"{'0' * 19}4.json" in requests[0]


def test_an_idle_minute_of_watchers_costs_a_few_requests(store, between):
    """An idle minute of supervisor, controller, courier and a job's tail costs few requests."""
    put_birth(store, BIRTH)
    assert Journal(store).append(1, SERVED)
    clock = Clock()
    publisher = Publisher(store, BIRTH, hold_seconds=10, clock=clock)
    publisher.begin(replace(FRONTIER, versions={"t": _table(store).version}))
    Legs(store, "b").begin(Leg(1, LegKind.TAIL, AT))
    journal, frontier = Journal.news(store, clock=clock), WatchedBuild(store, "b", clock)
    frontier.tail_frontier()

    with between.counting() as requests:
        for step in range(60 * 20):
            clock.now = step / 20
            publisher.follow_journal()
            if step % 4 == 0 and journal.are_due():
                list(Journal(store).after(1))
            if step % 10 == 0:
                frontier.tail_frontier()

    # A look in five seconds: one request at the journal, four at a build's leg and frontier.
    assert len(requests) <= 12 * (1 + 1 + 4), len(requests)


def test_a_watcher_is_told_at_once_by_who_puts_on_its_host(any_store):
    clock = Clock()
    journal, frontier = (
        Journal.news(any_store, clock=clock),
        Frontiers.news(any_store, "b", clock=clock),
    )
    assert journal.are_due()
    assert frontier.are_due()
    # At a folder it looks each time.
    assert journal.are_due() == any_store.is_on_disk

    Journal(any_store).append(1, SERVED)
    Frontiers(any_store, "b").publish(FRONTIER)

    assert journal.are_due()
    assert frontier.are_due()
    assert frontier.are_due() == any_store.is_on_disk
    # What was put by one that died before it told.
    clock.now = 5.0
    assert frontier.are_due()
