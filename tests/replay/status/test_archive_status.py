"""Laws of the archives' status: archives are reported even if their topics are gone.

The archiver runs if a topic may be archived.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from kappa import Topic
from kappa.base.process import process_id
from kappa.base.settings import Settings, load_settings
from kappa.declare.values.tally import Tally
from kappa.engine.archive.archiver import LOCK
from kappa.engine.read.archive_reader import archive_fingerprint
from kappa.kafka.client import TopicFacts
from kappa.records.decode.outcome import decoded_columns
from kappa.replay.platform.services import ArchiverService
from kappa.replay.status.archive import ArchiveState, ArchiveStatus, archive_listing, archive_status
from kappa.replay.status.run_records import Running, put_running
from kappa.state.lock import Lock
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.witness import LostEnd, Witnesses
from kappa.tables.archive import ArchiveMark, folder
from kappa.tables.delta import Guard
from kappa.tables.stored_archive import ensure_archive

VISITS = Topic("visits", event="id string, n int", partitions=2, archive=True)
MARK = ArchiveMark("visits", "1", archive_fingerprint(VISITS))


@dataclass
class Log:
    """A broker with one topic; `first` and `last` are the beginnings and ends of its partitions."""

    id: str = "1"
    first: Mapping[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    last: Mapping[int, int] = field(default_factory=lambda: {0: 50, 1: 60})
    cut: tuple[LostEnd, ...] = ()

    def topics(self) -> Mapping[str, TopicFacts]:
        return {"visits": TopicFacts("visits", self.id, 2)}

    def beginning(self, _topics: Iterable[str]) -> Offsets:
        return Offsets({"visits": self.first})

    def end(self, _topics: Iterable[str]) -> Offsets:
        return Offsets({"visits": self.last})

    def lost_ends(self, end: Offsets, _witnesses: Witnesses) -> tuple[LostEnd, ...]:
        assert end == Offsets({"visits": {0: 40, 1: 60}})
        return self.cut


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "kappa.toml").touch()
    return load_settings(tmp_path)


@pytest.fixture
def store(settings: Settings) -> Store:
    return Store(settings.root_url)


def archive(store: Store, mark: ArchiveMark = MARK) -> None:
    """Makes an archive that has reached the offsets 40 and 60, with three rejects."""
    place = store.address(folder(mark.topic, mark.fingerprint))
    held = ensure_archive(store, place, decoded_columns(VISITS), mark)
    for partition, end in ((0, 40), (1, 60)):
        tally = Tally(decoded=30, rejected=partition * 3)
        reached = held.mark().then(partition, 0, end, tally, 7)
        held.append(store, None, (), reached, Guard(f"p{partition}", end))


def status(settings: Settings, store: Store, log: Log | None, topic=VISITS) -> ArchiveStatus:
    # Nothing more is asked of a log.
    (found,) = archive_status(settings, store, {topic.name: topic}, log)  # type: ignore[arg-type]
    return found


def test_archive_tells_where_it_is(settings: Settings, any_store: Store) -> None:
    """The status reports how far the archive is, and how far it is behind the log."""
    store = any_store
    archive(store)

    waiting = status(settings, store, Log())
    me = process_id(os.getpid())
    assert me is not None
    put_running(store, Running(me.pid, me.born, "127.0.0.1:1", ""))
    starting = status(settings, store, Log())
    with Lock(store.local.path(LOCK), what="the archive"):
        following = status(settings, store, Log())

    assert waiting.state == ArchiveState.WAITING
    assert waiting.note == "kappa is not up: kappa up -d starts the archiver"
    assert starting.note == "the archiver starts within seconds; see kappa logs archiver"
    found = (following.state, following.note, following.behind)
    assert found == (ArchiveState.FOLLOWING, "", 10)
    (row,) = archive_listing([following]).row_objects()
    assert {"partitions": 2, "records": 63, "rejected": 3}.items() <= row.items()
    assert (row["from"], row["to"]) == ({"0": 0, "1": 0}, {"0": 40, "1": 60})


def test_declared_archive_is_behind_by_all(settings: Settings, store: Store) -> None:
    found = status(settings, store, Log(first={0: 5, 1: 0}))

    assert (found.mark, found.behind) == (None, 105)
    assert archive_listing([found]).row_objects()[0]["to"] == {}


LOST = "has lost records before they were archived: partition 0 lost offsets 40 to 40"
CUT = "the log has lost its end, which the archive has: visits partition 0 was cut at offset 38"
STUCK = [
    (Log(id="2"), "was created again"),
    (Log(first={0: 41, 1: 0}), LOST),
    (Log(cut=(LostEnd("visits", 0, 38, 40),)), f"{CUT} and has lost offsets 38 to 39"),
]


@pytest.mark.parametrize(("log", "says"), STUCK)
def test_stuck_archive_says_why(settings: Settings, store: Store, log: Log, says: str) -> None:
    """The status of a stuck archive says why it is stuck, and what to do."""
    archive(store)

    found = status(settings, store, log)

    assert (found.state, found.behind) == (ArchiveState.STOPPED, None)
    assert says in found.note
    assert "move its folder away" in found.note


def test_undeclared_archive_is_kept_and_told(settings: Settings, store: Store) -> None:
    """An archive that is not declared any more is reported, even without a broker."""
    archive(store)
    other = Topic("visits", event="id string, n bigint", partitions=2)

    found = status(settings, store, None, other)

    assert (found.state, found.behind) == (ArchiveState.KEPT, None)
    reached = {"start": {0: 0, 1: 0}, "end": {0: 40, 1: 60}, "log_time": {0: 7, 1: 7}}
    assert found.mark == replace(MARK, **reached, tally=found.mark.tally)


@pytest.mark.jvm
def test_archiver_runs_for_archived_topics(settings: Settings, store: Store) -> None:
    """The archiver starts if a topic is archived, and reloads changed files."""
    declares = (
        "from kappa import Table, Topic, pipeline\n"
        'T = Topic("t", event="id string"{})\n'
        'p = pipeline(name="p", reads={{"t": T}}, writes=[Table("all_t")])'
        '(lambda t: {{"all_t": t}})\n'
    )
    file = settings.project / "pipelines" / "p.py"
    clock = 0.0
    said: list[str] = []
    archiver = ArchiverService(store, settings, say=said.append, clock=lambda: clock)

    def looked() -> object:
        nonlocal clock
        clock += 60
        # No broker answers; the child needs longer to find that out than this test takes.
        archiver.ensure_running("127.0.0.1:1")
        return archiver._child.pid

    try:
        file.write_text(declares.format(""))
        assert looked() is None
        file.write_text("# no archive yet\n" + declares.format(""))
        child = looked()
        assert child is not None
        _until(lambda: looked() is None)
        assert (looked(), said) == (None, [])
        file.write_text(declares.format(", archive=True"))
        first = looked()
        assert first is not None
        assert looked() == first
        file.write_text("# another\n" + declares.format(", archive=True"))
        assert looked() not in {None, first}
        file.write_text(declares.format(', archive=True, kind="compacted"'))
        looked()
        _until(lambda: bool(looked() or said) and any("ended with 2" in line for line in said))
    finally:
        archiver.end()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
