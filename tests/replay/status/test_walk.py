"""Each file of a root is damaged in turn: no answer is wrong, and no damage is silent (I14).

Files of tables are damaged in test_scrub.py and in tests/tables, files of archives in
tests/engine/archive/test_archive_rot.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from crashing import Doom, World
from stores import make_store

from kappa.base.errors import KappaError
from kappa.declare.formats.registry_schemas import RegisteredSchema
from kappa.engine.job.splits import Splits
from kappa.records.decode.identity_file import newest_memory, put_memory
from kappa.records.identity import DIGEST_BYTES, Memory
from kappa.replay.page.intents import do_once
from kappa.replay.status.doctor.examine import examine_root, unsealed_documents
from kappa.replay.status.status import observe_status
from kappa.serving.collect.pulled.source_protocol import PullPosition, put_position
from kappa.serving.outlets.alerts.channels import ShownOnPage
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    DeadLetter,
    Outbox,
    ask_to_send_again,
    put_alert_progress,
    put_dead_letter,
    put_outbox,
)
from kappa.serving.outlets.sinks.sink_status import SinkState, put_sink_state
from kappa.serving.query.query import answer_query
from kappa.state.build import folder_of_build
from kappa.state.build_status import ViewCheck, put_view_check
from kappa.state.offsets import Offsets
from kappa.state.root import ensure_root
from kappa.state.slices import Slice
from kappa.state.store import Store

if TYPE_CHECKING:
    from object_store import ObjectStore

SQL = "select * from ships order by all"
NOW = 0.0


def flipped(content: bytes, draw: random.Random) -> bytes:
    bit = draw.randrange(8 * len(content))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


DAMAGES: Mapping[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flipped": flipped,
    "zeroed": lambda content, _draw: b"\0" * len(content),
    "halved": lambda content, _draw: content[: len(content) // 2],
    "emptied": lambda _content, _draw: b"",
    "deleted": lambda _content, _draw: None,
}
# What nobody can tell from a document that was never put: without one, all is as it was before it.
FORGOTTEN = re.compile(
    r".*\.newest|root_copy\.json|run/.*"
    r"|builds/[^/]+/(begun|split|verification|birth_copy|views-checked|view-costs)\.json"
    r"|builds/[^/]+/identities/.*"
    r"|(alerts|cache|collector|leases|schemas)/.*"
)
# The oldest of several: it is taken for one that was let go, and nothing reads it.
OLDEST = re.compile(r"builds/[^/]+/(frontier|legs)/\d+\.json")
# Their damage is told by others, or they have no content.
ELSEWHERE = re.compile(r".*/tables/.*|.*/lock|damaged/.*")


@dataclass(frozen=True, slots=True)
class Root:
    """A root whose pipeline serves its second build, with the served rows.

    Its objects are files in `folder`, which belongs to the root itself or to its bucket's server.
    """

    store: Store
    folder: Path
    rows: tuple[tuple[object, ...], ...]
    names: tuple[str, ...]

    def anew(self) -> Store:
        """Returns the root as a new process opens it."""
        if self.store.is_on_disk:
            return Store(self.folder, syncs=False)
        return Store(self.store.url, storage=self.store.storage, local=self.store.local.folder)

    @contextmanager
    def damaged(self, name: str, content: bytes | None) -> Iterator[Store]:
        """Replaces the content of a file within the block, and restores all files afterwards.

        If `content` is None, the file is deleted.
        """
        before = dict[Path, bytes]()
        for each in self.folder.rglob("*"):
            # The lease of an answer before may go meanwhile.
            with suppress(FileNotFoundError, IsADirectoryError):
                before[each] = each.read_bytes()
        path = self.folder / name
        path.unlink() if content is None else path.write_bytes(content)
        try:
            yield self.anew()
        finally:
            for each in [path for path in self.folder.rglob("*") if path.is_file()]:
                if each not in before:
                    each.unlink(missing_ok=True)
            for each, whole in before.items():
                if not each.exists() or each.read_bytes() != whole:
                    # A server of objects deletes folders that are empty.
                    each.parent.mkdir(parents=True, exist_ok=True)
                    each.write_bytes(whole)


def put_outlets(store: Store) -> None:
    """Puts the records that a courier keeps about an alert and about a sink."""
    message = Message("m1", "{}")
    put_outbox(store, "late", Outbox(1, "cursor", 1.0, (message,)))
    put_alert_progress(store, "late", AlertProgress(1, 1))
    put_dead_letter(store, "late", DeadLetter(message, "it was refused", 3, "2026-01-01"))
    ask_to_send_again(store, "late", "m1")
    ShownOnPage(store, "late").send(message)
    put_sink_state(store, SinkState("ships-now", "ships", "ships", "follows", "cursor"))


def put_notes_of_jobs(store: Store, build: str) -> None:
    """Puts the records that jobs keep about a build, and that no world of these tests has."""
    piece = Slice(1, 0, Offsets({"ships": {0: 0}}), Offsets({"ships": {0: 9}}))
    for _ in range(2):
        Splits(store, build).begin(piece)
    assert len(Splits(store, build).parts(piece)) > 1
    put_view_check(store, build, ViewCheck(piece.end, (), "2026-01-01"))
    memory = Memory(1_000, {b"d" * DIGEST_BYTES: 5})
    put_memory(store.address(f"{folder_of_build(build)}/identities/ships"), 0, 9, memory, 5)


def remembered(root: Root, store: Store) -> set[tuple[int | None, ...]]:
    """Returns the log times and counts that a job takes from the memories of identities."""
    found = set[tuple[int | None, ...]]()
    for name in root.names:
        if name.endswith(".parquet"):
            of_topic, partition, _ = name.rsplit("/", 2)
            taken = newest_memory(store.address(of_topic), int(partition), 9, 1_000)
            found |= set() if taken is None else {(taken[2], len(taken[1].within(0)))}
    return found


@pytest.fixture(scope="module", params=["disk", pytest.param("bucket", marks=pytest.mark.long)])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Root:
    place = tmp_path_factory.mktemp("walk")
    if request.param == "disk":
        place = place / "root"
        opened = Store(place, syncs=False)
    else:
        opened = make_store("bucket", request, place)
        running: ObjectStore = request.getfixturevalue("object_store")
        place = running.folder / opened.url.removeprefix("s3://")
    ensure_root(opened)
    world = World(opened, Doom())
    world.serve("one", 16)
    world.serve("two", 30)
    store = world.store
    put_outlets(store)
    put_notes_of_jobs(store, next(iter(store.names("builds"))).split("/")[1])
    put_position(store, "bids", PullPosition("a", last_event_id="7"))
    store.put_json("schemas/7.json", msgspec.to_builtins(RegisteredSchema("AVRO", '"string"')))
    store.put_json("cache/law/v.json", {"records": 5, "large": True})
    do_once(store, "a key", {"a": 1}, lambda: {"done": True})
    names = tuple(name for name in store.names("") if not ELSEWHERE.fullmatch(name))
    found = Root(store, place, answer_query(store, SQL).rows, names)
    assert examine_root(found.anew(), now=NOW) == ()
    assert unsealed_documents(store) == ()
    return found


def names(text: str, name: str) -> bool:
    """Returns True if a text names a file.

    A file is named by its path, or, in a code snapshot, by the path within the snapshot.
    """
    build, _, path = name.removeprefix("builds/").partition("/code/")
    return name in text or (bool(path) and build in text and path in text)


def held(root: Root, name: str, damage: str, seed: int, told: Callable[[], str]) -> str | None:
    """Returns what is wrong with the way in which a damage shows, or None."""
    content = (root.folder / name).read_bytes()
    other = DAMAGES[damage](content, random.Random(f"{name} {damage} {seed}")) if content else None
    if other == content:
        return None
    with root.damaged(name, other) as store:
        if not remembered(root, store) <= {(5, 1)}:
            return "a wrong memory"
        try:
            if answer_query(store, SQL).rows != root.rows:
                return "a wrong answer"
        except KappaError as error:
            if not names(str(error), name) or not error.hint:
                return f"an answer that does not name it: {error}"
        status = observe_status(root.anew(), None)
        found = examine_root(root.anew(), now=NOW)
    said = told()
    silent = not any(names(each.what, name) and (each.names or each.hint) for each in found)
    beside = [each for each in root.names if Path(each).parent == Path(name).parent]
    is_oldest = OLDEST.fullmatch(name) is not None and name == beside[0] != beside[-1]
    forgotten = other is None and (is_oldest or FORGOTTEN.fullmatch(name) is not None)
    if silent and not names(said, name) and not forgotten:
        return f"silence: {found} {said}"
    return None if status.builds or status.damaged else "a status of nothing"


@pytest.mark.slow
def test_a_damage_of_any_file_shows(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file is damaged in one way; `make faults` tries all ways."""
    wrong = {}
    # By the name without the build's id, which is another each time.
    by_name = sorted(root.names, key=lambda name: re.sub(r"ships-\w+", "", name))
    for number, name in enumerate(by_name):
        damage = list(DAMAGES)[number % len(DAMAGES)]
        why = held(root, name, damage, 0, lambda: capsys.readouterr().err)
        if why is not None:
            wrong[name, damage] = why

    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_of_each_file_shows(
    root: Root, damage: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        name: held(root, name, damage, seed, lambda: capsys.readouterr().err) for name in root.names
    }

    assert {name: why for name, why in found.items() if why is not None} == {}
